"""Classes and words in them, learned together on components of the state."""
