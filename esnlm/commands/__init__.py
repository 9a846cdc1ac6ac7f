"""One module a command: its options, and what runs it."""
