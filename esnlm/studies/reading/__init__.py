"""What surprisal says of reading times beyond length and frequency."""
