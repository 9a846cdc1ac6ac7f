"""Artificial grammars with exact next-word distributions."""
