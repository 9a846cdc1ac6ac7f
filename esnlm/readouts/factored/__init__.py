"""Readouts that predict a word's class, then the word in it."""
