"""The reservoir: tokens or vectors in, states out."""
