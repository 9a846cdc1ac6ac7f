"""Compiled functions: arrays in, arrays out; they import numpy, numba and platformdirs alone."""
