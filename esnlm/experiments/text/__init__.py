"""Reservoirs on the words and characters of a text."""
