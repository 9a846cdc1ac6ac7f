"""What all readouts share: blocks of rows, moments, saved state."""
