"""Word features: vectors of words that drive a reservoir."""
