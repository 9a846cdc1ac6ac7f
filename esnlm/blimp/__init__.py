"""Minimal pairs (BLiMP; Warstadt et al. 2020): read, score, tabulate, plot.

A model judges a pair rightly if it finds the acceptable sentence more probable than the other. The
score of a sentence is the sum of the natural-log probabilities of its tokens after BOS. EOS is not
scored, and no space is put before the first word: so do minicons and lm-evaluation-harness with
``doc_to_choice`` of the bare sentences, and models are trained on lines that begin without one
(GPT-2's tokenizer knows " The" and "The" as different tokens). The stock task of
lm-evaluation-harness scores ``" sentence"``, which such a model never saw at a beginning.
A tie counts half; elsewhere ties may count as right.
"""

from esnlm.blimp.likelihood import sentence_log_likelihoods
from esnlm.blimp.pairs import Pair, PairsError, read_pairs
from esnlm.blimp.published import read_published
from esnlm.blimp.scores import PairScores, score_pairs
from esnlm.blimp.table import COLUMNS, tabulate

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
