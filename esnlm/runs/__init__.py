"""Runs of a grid of settings: in processes, on a cluster, with the record of each."""
