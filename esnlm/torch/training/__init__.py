"""Training of networks: batches, plan, optimiser, checkpoints."""
