"""Text: corpora, tokenizers, sentences, shards on disk."""
