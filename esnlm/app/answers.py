"""What the page asks of a model: surprisal, next tokens, the path of the state, pairs."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from tokenizers.models import WordLevel

from esnlm.evaluation.measures import ScoredText
from esnlm.evaluation.minimal_pairs.pairs import Pair
from esnlm.evaluation.minimal_pairs.scores import score_pairs
from esnlm.models.sampling import text_pieces
from esnlm.models.surprisal import surprisal_rows
from esnlm.models.token_scores import token_scores
from esnlm.text.boundaries import framed, framed_prefix
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Floats

#: Characters and tokens of a text, at most: what bounds the work of a request.
MOST_CHARACTERS = 2000
MOST_TOKENS = 256


@dataclass(frozen=True)
class About:
    """A model: what it is, the unit of its tokens, the entries of its vocabulary.

    ``n_units`` is the size of its reservoir, or null where it has none: then it has no path.
    ``end`` spells the end of a sentence, if it has one. ``reset`` is where its state (or context)
    returns to zero: at each sentence (a line), at each document (a text), or never.
    """

    name: str
    kind: str
    unit: str
    n_tokens: int
    n_units: int | None
    reset: str
    end: str | None


@dataclass(frozen=True)
class Token:
    """A predicted token of a word, and its surprisal in bits."""

    string: str
    bits: float


@dataclass(frozen=True)
class Word:
    """A word between white space, or the end of a sentence, and its surprisal in bits.

    ``line`` and ``place`` count from 1. ``bits`` is the sum over ``tokens``, the predicted ones,
    corrected for the end of the word; ``n_unknown`` of them are not in the vocabulary.
    """

    line: int
    place: int
    string: str
    bits: float
    n_unknown: int
    tokens: list[Token]


@dataclass(frozen=True)
class Surprisal:
    """Words of a text; bits of all, and the perplexity of a token."""

    words: list[Word]
    n_tokens: int
    bits: float
    perplexity: float


@dataclass(frozen=True)
class Candidate:
    """A next token, its probability, and what it adds to the text."""

    string: str
    probability: float
    continuation: str


@dataclass(frozen=True)
class NextTokens:
    """The most probable next tokens, and the other ``n_rest`` with their summed probability.

    ``text`` is what a continuation is appended to. ``entropy_bits`` is that of the distribution.
    """

    text: str
    candidates: list[Candidate]
    n_rest: int
    rest_probability: float
    entropy_bits: float


@dataclass(frozen=True)
class Step:
    """The state after a token: its places on the first two principal components."""

    line: int
    string: str
    x: float
    y: float


@dataclass(frozen=True)
class StatePath:
    """The states along a text, in their own principal components.

    ``explained`` are the shares of these states' variance that lie along the two.
    """

    steps: list[Step]
    explained: list[float]
    n_units: int


@dataclass(frozen=True)
class Verdict:
    """Which of two sentences is likelier: "first", "second" or "neither", and by how many bits.

    Bits are the sums over all tokens after the beginning, without the end, as in ``esnlm blimp``.
    """

    likelier: str
    first_bits: float
    second_bits: float
    difference_bits: float


class ShownModel:
    """A model with a tokenizer, and the answers that it gives to the page.

    Every text has at most `MOST_CHARACTERS` characters and `MOST_TOKENS` tokens; ValueError where
    it has more, or where the model cannot score it. All logarithms are to base 2.

    >>> from esnlm import NgramLanguageModel
    >>> docs = ["the boy sees the dog", "the dog sees the boy"] * 5
    >>> model = ShownModel("counts", NgramLanguageModel(order=3, tokenizer="word").fit(docs))
    >>> [word.string for word in model.surprisal("the boy sees").words]
    ['the', 'boy', 'sees', '</s>']
    >>> model.next_tokens("the boy sees", 1).candidates[0].continuation
    ' the'
    """

    def __init__(self, name: str, model: Any) -> None:
        if model.tokenizer_ is None:
            needs = "expected a model with a tokenizer, which reads text"
            raise ValueError(f"{name} was trained on integers: {needs}")
        self.name, self.model = name, model
        self.tokenizer: Tokenizer = model.tokenizer_

    def about(self) -> About:
        """Return what the model is."""
        reservoir = getattr(self.model, "reservoir_", None)
        kinds = {"NgramLanguageModel": "n-grams", "LanguageModel": "reservoir",
                 "InterpolatedModel": "interpolated"}  # fmt: skip
        unit = "character" if self.tokenizer.keeps_newlines else "word"
        if not isinstance(self.tokenizer.backend.model, WordLevel):
            unit = "sub-word"
        return About(
            name=self.name,
            kind=kinds.get(type(self.model).__name__, "network"),
            unit=unit,
            n_tokens=self.model.n_tokens_,
            n_units=None if reservoir is None else int(reservoir.n_units),
            reset=self.model.reset_,
            end=self.tokenizer.eos,
        )

    def surprisal(self, text: str) -> Surprisal:
        """Return the surprisal of each word, and of its tokens, as ``esnlm evaluate`` writes it."""
        self._check("text", text)
        stream = self.model.tokenize([text])
        scores = _finite(self.model._scores(stream))
        of_words = token_scores(self.model, stream)
        reset = self.model.reset_
        part = ScoredText([text], 0, stream, stream.predicted(), [scores], reset, of_words)
        tokens = defaultdict(list)
        for row in surprisal_rows(part, self.model, "token", "text"):
            token = Token(row["string"], row["surprisal_bits"])
            tokens[row["sentence"], row["position"]].append(token)
        words = []
        for row in surprisal_rows(part, self.model, "word", "text"):
            line, place = row["sentence"], row["position"]
            about = row["word"], row["surprisal_bits"], row["n_unknown"]
            words.append(Word(line, place, *about, tokens[line, place]))
        bits = -math.fsum(scores) / math.log(2)
        perplexity = 2 ** min(bits / max(stream.n_predicted, 1), 1000)
        return Surprisal(words, stream.n_predicted, bits, perplexity)

    def next_tokens(self, text: str, k: int) -> NextTokens:
        """Return the ``k`` most probable tokens after ``text``, which may be empty."""
        self._check("text", text, empty=True)
        tokenizer, bare = self.tokenizer, text.rstrip(" ")
        if len(tokenizer.encode(bare)) == len(tokenizer.encode(text)):
            text = bare  # spaces that the model does not read but writes
        probabilities: Floats = self.model.predict_proba(text)
        before = framed_prefix(text, tokenizer, self.model.reset_)
        order = np.argsort(-probabilities, kind="stable")
        candidates = [
            Candidate(
                self._string(token),
                float(probabilities[token]),
                "".join(text_pieces(tokenizer, before, [token])),
            )
            for token in order[:k].tolist()
        ]
        rest, positive = probabilities[order[k:]], probabilities[probabilities > 0]
        entropy = -float(positive @ np.log2(positive))
        return NextTokens(text, candidates, len(rest), float(rest.sum()), entropy)

    def state_path(self, text: str) -> StatePath:
        """Return the states of a reservoir along ``text``; ValueError where the model has none."""
        if (reservoir := getattr(self.model, "reservoir_", None)) is None:
            raise ValueError(f"{self.name} has no reservoir, so there is no state to follow")
        self._check("text", text)
        (sequences,) = framed([text], self.tokenizer, self.model.reset_)
        features = self.model.features_
        inputs = [ids if features is None else features.transform(ids) for ids in sequences]
        states = np.concatenate([reservoir.transform(each) for each in inputs]).astype(np.float64)
        places, explained = principal_components(states)
        place = iter(places.tolist())
        steps = [
            Step(line, string, *next(place))
            for line, ids in enumerate(sequences, start=1)
            for string in self._strings(ids)
        ]
        return StatePath(steps, explained.tolist(), states.shape[1])

    def pair(self, first: str, second: str) -> Verdict:
        """Return which of two sentences is likelier."""
        self._check("first", first)
        self._check("second", second)
        scores = score_pairs(self.model, [Pair("own", "", "", "1", first, second)])
        bits = _finite([scores.good[0], scores.bad[0]]) / -math.log(2)
        first_bits, second_bits = bits.tolist()
        likelier = "neither" if scores.ties[0] else "first" if scores.right[0] else "second"
        difference = 0.0 if scores.ties[0] else abs(first_bits - second_bits)
        return Verdict(likelier, first_bits, second_bits, difference)

    def _check(self, name: str, text: str, *, empty: bool = False) -> None:
        """Refuse a text that is too long, or blank unless it may be empty."""
        if len(text) > MOST_CHARACTERS:
            raise ValueError(
                f"{name} must have at most {MOST_CHARACTERS} characters, got {len(text)}"
            )
        if not empty and not text.strip():
            raise ValueError(f"{name} must hold a word, got {text!r}")
        if (n_tokens := len(self.tokenizer.encode(text))) > MOST_TOKENS:
            raise ValueError(
                f"{name} must have at most {MOST_TOKENS} tokens, got {n_tokens} of {self.name}"
            )

    def _string(self, *tokens: int) -> str:
        """Return tokens as text, "\ufffd" where a character is cut; a boundary as it is spelled."""
        return (
            self.tokenizer.decode(tokens) or self.tokenizer.spelling(tokens[-1]) or str(tokens[-1])
        )

    def _strings(self, tokens: Iterable[int]) -> Iterator[str]:
        """Yield each token as text; a character of several tokens stands at the last of them."""
        waiting: list[int] = []
        for token in tokens:
            waiting = [*waiting, int(token)][-4:]  # UTF-8 has at most four bytes a character
            string = self._string(*waiting)
            yield string if len(waiting) == 1 or not string.endswith("\ufffd") else "\ufffd"
            if not string.endswith("\ufffd"):
                waiting = []


def principal_components(states: Floats) -> tuple[Floats, Floats]:
    """Return places (n, 2) of states (n, d) on two components, and shares of variance (2,).

    Both are zero where there are no two directions in which the states differ.
    """
    places, explained = np.zeros((len(states), 2)), np.zeros(2)
    if len(states) > 1 and np.ptp(states, axis=0).any():
        pca = PCA(min(2, *states.shape), svd_solver="full").fit(states)
        places[:, : pca.n_components_] = pca.transform(states)
        explained[: pca.n_components_] = pca.explained_variance_ratio_
    return places, explained


def _finite(scores: Sequence[float] | Floats) -> Floats:
    """Return log-probabilities as they are; raise ValueError where a probability is zero."""
    if not np.isfinite(scores).all():
        raise ValueError("the model gives a probability of zero: the surprisal is infinite")
    return np.asarray(scores, dtype=np.float64)
