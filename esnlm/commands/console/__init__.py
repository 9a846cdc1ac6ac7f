"""Signals and training runs of commands."""
