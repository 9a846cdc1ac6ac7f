"""Reports: one HTML page of models, runs and grids, without any other file."""
