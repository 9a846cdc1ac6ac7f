"""Bridges to other libraries; each imports its client when used."""
