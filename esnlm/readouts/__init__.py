"""Readouts: reservoir states to a probability distribution over the next token."""
