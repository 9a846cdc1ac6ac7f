"""Networks of equal size, compared."""
