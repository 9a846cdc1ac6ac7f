"""Experiments: a grid of settings to rows of a CSV, and their plots."""
