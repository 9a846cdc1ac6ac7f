"""A softmax for each token read last."""
