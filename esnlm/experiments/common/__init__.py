"""Parts shared by all studies: grids of runs, provenance, figures, tables."""
