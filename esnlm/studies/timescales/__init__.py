"""Timescales of units, and the decay of a word in the state."""
