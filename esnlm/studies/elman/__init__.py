"""Elman's grammar: perplexity against the size of the reservoir."""

#: Readouts of the grid.
READOUTS = ("ridge", "softmax", "moe", "factored", "mlp")
