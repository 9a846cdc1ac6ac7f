"""What studies share: grids of runs, provenance, figures."""
