"""Softmax regression: Newton's method, stochastic gradient."""
