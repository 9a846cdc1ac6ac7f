"""Checks of input, threads and BLAS."""
