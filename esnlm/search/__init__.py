"""Settings found by search: a space of settings, trials judged on held-out text, what mattered."""
