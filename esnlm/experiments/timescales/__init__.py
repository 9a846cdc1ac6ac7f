"""How long units remember."""
