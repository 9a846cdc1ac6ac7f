"""Characters of Shakespeare, split by play."""
