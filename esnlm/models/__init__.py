"""Language models: score, sample, save, train."""
