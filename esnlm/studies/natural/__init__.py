"""Reservoirs on millions of words."""
