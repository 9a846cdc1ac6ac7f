"""Messages, signals and progress of commands."""
