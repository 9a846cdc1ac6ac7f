"""How well a model predicts text: by token, word and character; minimal pairs."""
