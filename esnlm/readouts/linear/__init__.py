"""Ridge regression, projected to distributions."""
