"""Nested brackets (Dyck-2)."""
