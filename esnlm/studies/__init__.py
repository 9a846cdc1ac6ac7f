"""Studies: one folder each, with its command, its runs and its plots."""
