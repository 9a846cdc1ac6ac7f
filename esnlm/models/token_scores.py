"""What the distributions of a model say at each token: ends of words, entropy and rank."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import entr

from esnlm.text.boundaries import needed
from esnlm.text.corpus import TokenStream
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Bools, Floats, Ints64

#: Rows of `TokenScores.boundary_bits`: what the next token may be.
BEGINS, STARTS, LEAVES, GOES_ON = range(4)


@dataclass(frozen=True)
class TokenScores:
    """Scores (T,) of the tokens of a stream, from the distributions before them.

    ``entropy_bits``: of the distribution. ``rank``: 1 for the most probable token.
    ``boundary_bits`` (4, T): -log2 of the probabilities that the token

    - BEGINS a word: it carries a space, or is BOS or EOS;
    - STARTS a text that has no space before it: it carries no space, or is EOS;
    - LEAVES the letters of a word: it begins another, or is a mark;
    - GOES_ON with letters: it carries no space, and is no mark.

    None where tokens are words, which end by themselves, or plain sums were asked for. Otherwise
    entropy and rank of a token that begins a word are those among such tokens.
    """

    entropy_bits: Floats
    rank: Ints64
    boundary_bits: Floats | None

    def __getitem__(self, places: Any) -> "TokenScores":
        """Return the scores of some tokens."""
        bits = self.boundary_bits
        bits = None if bits is None else bits[:, places]
        return TokenScores(self.entropy_bits[places], self.rank[places], bits)


def token_scores(model: Any, stream: TokenStream, correct_boundaries: bool = True) -> TokenScores:
    """Return the scores of the tokens of a stream; zeros and ones where nothing is predicted.

    Equations of the boundaries: Pimentel & Meister 2024, arXiv 2406.14561, theorem 1; Oh & Schuler
    2024, arXiv 2406.10851.
    """
    kinds = _kinds(needed(model.tokenizer_), model.n_tokens_) if correct_boundaries else None
    n = len(stream.tokens)
    entropy, rank = np.zeros(n), np.ones(n, dtype=np.int64)
    probabilities = np.ones((n, 4))
    for rows, places in model._distributions(stream):
        tokens = np.asarray(stream.tokens[places], dtype=np.int64)
        if kinds is not None:
            probabilities[places] = rows @ kinds
            among = kinds[:, BEGINS] > 0
            rows = np.where(among[tokens][:, None], rows * among, rows)
        totals = rows.sum(axis=1)
        entropy[places] = entr(rows).sum(axis=1) / totals + np.log(totals)
        own = rows[np.arange(len(rows)), tokens]
        rank[places] = 1 + np.count_nonzero(rows > own[:, None], axis=1)
    bits = None if kinds is None else -np.log2(np.clip(probabilities, np.finfo(float).tiny, 1.0)).T
    return TokenScores(np.maximum(entropy, 0) / np.log(2), rank, bits)


def _kinds(tokenizer: Tokenizer, n_tokens: int) -> Floats | None:
    """Mark tokens by kinds of `TokenScores`: ones (V, 4); None where tokens are words."""
    begins = tokenizer.begins_word
    if begins is None:
        return None
    marks = tokenizer.is_mark
    starts = ~begins
    if tokenizer.eos_id is not None:
        starts[tokenizer.eos_id] = True
    kinds = np.zeros((n_tokens, 4))
    columns: list[Bools] = [begins, starts, begins | marks, ~begins & ~marks]
    kinds[: len(begins)] = np.stack(columns, axis=1)
    return kinds
