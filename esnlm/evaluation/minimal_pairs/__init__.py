"""Minimal pairs (BLiMP; Warstadt et al. 2020): read, score, tabulate, plot.

A model judges a pair rightly if it finds the acceptable sentence more probable than the other. The
score of a sentence is the sum of the natural-log probabilities of its tokens after BOS. EOS is not
scored, as lm-evaluation-harness and minicons do not score it. No space is put before the first
word: models are trained on lines that begin without one, and to a tokenizer such as GPT-2's " The"
and "The" are different tokens. (The stock BLiMP task of lm-evaluation-harness puts a space there,
which asks a model about beginnings that it has never seen.) A tie counts half, and ties are
reported; outside scorers may count them as right.
"""

from esnlm.evaluation.minimal_pairs.likelihood import sentence_log_likelihoods
from esnlm.evaluation.minimal_pairs.pairs import Pair, PairsError, read_pairs
from esnlm.evaluation.minimal_pairs.published import read_published
from esnlm.evaluation.minimal_pairs.scores import PairScores, score_pairs
from esnlm.evaluation.minimal_pairs.table import COLUMNS, tabulate

__all__ = [
    "COLUMNS",
    "Pair",
    "PairScores",
    "PairsError",
    "read_pairs",
    "read_published",
    "score_pairs",
    "sentence_log_likelihoods",
    "tabulate",
]
