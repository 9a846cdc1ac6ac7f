"""Scores of models on text: by token, word and character; minimal pairs."""
