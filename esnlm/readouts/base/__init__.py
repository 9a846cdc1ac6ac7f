"""Base classes of readouts: blocks of rows, moments, saved state."""
