"""What a reservoir's coupling, its memory and direct connections each add to a model."""
