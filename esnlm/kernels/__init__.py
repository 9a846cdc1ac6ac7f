"""Compiled functions: arrays in, arrays out; they import numpy and numba alone."""
