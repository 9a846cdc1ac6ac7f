"""Training: passes over a text, checkpoints, logs, penalties, parts of a text side by side."""
