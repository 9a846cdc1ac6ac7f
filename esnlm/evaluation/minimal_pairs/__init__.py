"""Minimal pairs (BLiMP; Warstadt et al. 2020): read them, score them, tabulate accuracies.

A model judges a pair rightly if it finds the acceptable sentence more probable than the other. The
score of a sentence is the sum of the natural-log probabilities of its tokens after BOS. EOS is not
scored, as lm-evaluation-harness and minicons do not score it. No space is put before the first
word unless it is asked for: models are trained on lines that begin without one, and to a tokenizer
such as GPT-2's " The" and "The" are different tokens. (The stock BLiMP task of
lm-evaluation-harness puts a space there, which asks a model about beginnings that it has never
seen.) A tie counts half; accuracies
with ties as wrong (strict) and as right (correct, as lm-evaluation-harness counts them) stand
beside, since a model that knows no order of words has ties in every paradigm that permutes words.
"""
