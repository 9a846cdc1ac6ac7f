"""Training runs of commands."""
