"""Readouts that predict a class of words, then a word of the class."""
