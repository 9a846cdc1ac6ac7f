"""Elman's sentences: drawn, and the exact distribution of their next word."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from esnlm.grammars.elman_rules import END, LEXICON, WEIGHT, lexical_shares, productions
from esnlm.grammars.pushdown import PushdownProcess, RandomState, uniforms
from esnlm.utils.arrays import Floats, Tokens, checked_tokens
from esnlm.utils.memory import check_memory
from esnlm.utils.validation import Count, Number

#: Sentences of each length in a corpus of 5 500 whose mean is 6.70 words, the corpus that the
#: paper's section 4.1 describes. Its author's own set, as it came down to us, is the next one.
PAPER_LENGTHS: Mapping[int, float] = {3: 150, 4: 350, 5: 250, 6: 1250, 7: 2250, 8: 750, 9: 500}
#: Sentences of each length in the set of Rachez: 5 300 sentences, mean 6.76 words. It differs from
#: the paper's 5 500 and 6.7 by exactly the 200 sentences of five words that it lacks.
AUTHOR_LENGTHS: Mapping[int, float] = {**PAPER_LENGTHS, 5: 50}
# The distribution of lengths takes time that grows with the cube of the longest: 16 s.
_LONGEST = 1000
_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "noun_phrase": {"proper": 0.2, "noun": 0.4, "relative": 0.4},
    "relative_clause": {"subject": 0.5, "object": 0.5},
    "verb": {"required": 1 / 3, "optional": 1 / 3, "none": 1 / 3},
}


class ElmanGrammar:
    """Sentences with relative clauses and number agreement, and their exact oracle.

    ::

        S  -> NP VP "."
        NP -> PropN | N | N RC
        VP -> V (NP)
        RC -> who NP VP | who VP (NP)

    The verb of a clause agrees in number with the subject of that clause, which in a subject
    relative ("boys who see Mary") is the head noun. *chase* and *feed* take an object, *see* and
    *hear* may, *walk* and *live* take none. In an object relative ("boys who Mary sees") the head
    noun is the object of the relative verb, so that verb is one that can take an object (drawn
    from the required and the optional ones in proportion) and no other object follows it, as in
    Elman's corpus. The subject of an object relative may itself carry a relative clause. With
    ``gaps=False`` the productions are taken as they stand: the verb of an object relative may be
    of any kind and has an object of its own where its kind asks for one.

    A sentence is drawn from this probabilistic grammar *conditioned on its length*, counted in
    words without the full stop. With ``length_quotas`` the length is drawn first, in proportion
    to the quotas, then the sentence from the grammar conditioned on that length. With
    ``length_quotas=None`` the condition is only that the length lies in
    ``[min_length, max_length]``. Sentences are independent, so a corpus is shuffled as it stands.

    By default every noun, verb and kind of relative is equally likely, as are with and without
    an object, singular and plural, and a common noun with and without a clause; the lengths follow
    ``PAPER_LENGTHS``: 3 to 9 words, mean 6.70, which the grammar alone does not reach (5.2).

    Raises ValueError for probabilities that are negative or do not sum to one, a quota for a length
    that no sentence has, words that are not in the vocabulary.

    Parameters
    ----------
    noun_phrase : probabilities of ``proper``, ``noun`` and ``relative`` (noun with a clause).
    relative_clause : probabilities of ``subject`` and ``object`` relatives.
    verb : probabilities of the kinds ``required``, ``optional`` and ``none`` (of an object).
    object_probability : probability that an optional verb takes an object.
    plural_probability : probability that a common noun is plural.
    word_weights : word -> weight among the words of its class; unnamed words weigh 1.
    gaps : whether the verb of an object relative leaves its object out.
    length_quotas : length -> weight, or None to keep the lengths of the grammar.
    min_length, max_length : bounds of the length in words, 1 to 1000, without the full stop.

    Attributes
    ----------
    vocabulary : tuple of 24 words; the position of a word is its token.
    word_class : word -> its class (a key of ``LEXICON``).
    length_distribution : length -> probability, of the sentences as sampled.
    mean_length : expected number of words of a sentence, without the full stop.

    References
    ----------
    J. L. Elman (1991), Distributed representations, simple recurrent networks, and grammatical
    structure. M. H. Tong et al. (2007), Learning grammatical structure with echo state networks.
    A. Rachez and M. Hagiwara, Augmented echo state networks with word features, section 4.1.

    Examples
    --------
    >>> grammar = ElmanGrammar()
    >>> len(grammar.sample(100, random_state=0)), round(grammar.mean_length, 6)
    (100, 6.7)
    >>> after = grammar.next_word_distribution(["boy", "who"])
    >>> round(float(after.sum()), 12), float(after[grammar.vocabulary.index("see")])
    (1.0, 0.0)
    """

    def __init__(
        self,
        *,
        noun_phrase: Mapping[str, float] | None = None,
        relative_clause: Mapping[str, float] | None = None,
        verb: Mapping[str, float] | None = None,
        object_probability: float = 0.5,
        plural_probability: float = 0.5,
        word_weights: Mapping[str, float] | None = None,
        gaps: bool = True,
        length_quotas: Mapping[int, float] | None = PAPER_LENGTHS,
        min_length: int = 3,
        max_length: int = 9,
    ) -> None:
        """Build the rules from the settings, and condition the process on sentence length."""
        self.noun_phrase = _distribution("noun_phrase", noun_phrase)
        self.relative_clause = _distribution("relative_clause", relative_clause)
        self.verb = _distribution("verb", verb)
        self.object_probability = _probability("object_probability", object_probability)
        self.plural_probability = _probability("plural_probability", plural_probability)
        self.gaps = gaps
        self.vocabulary: tuple[str, ...] = tuple(chain.from_iterable(LEXICON.values()))
        self.word_class: dict[str, str] = {
            word: kind for kind, words in LEXICON.items() for word in words
        }
        self._token = {word: token for token, word in enumerate(self.vocabulary)}
        if not 1 <= min_length <= max_length <= _LONGEST:
            raise ValueError(
                f"max_length must be from min_length, of at least 1, to {_LONGEST}, got"
                f" min_length={min_length} and max_length={max_length}"
            )
        rules = productions(
            self.noun_phrase, self.relative_clause, self.verb, self.object_probability,
            self.plural_probability, gaps, lexical_shares(word_weights or {}),
        )  # fmt: skip
        self._process = PushdownProcess(rules, self.vocabulary, max_length)
        free = self._process.lengths()
        weights = _length_weights(free, length_quotas, min_length)
        self._process.condition(weights)
        self.length_distribution: dict[int, float] = {
            length: float(share) for length, share in enumerate(weights * free) if share
        }
        self.mean_length = sum(length * p for length, p in self.length_distribution.items())

    def sample(self, n_sentences: int, random_state: RandomState = None) -> list[list[str]]:
        """Draw ``n_sentences`` independent sentences: lists of words that end with the full stop.

        Each word is drawn from its exact conditional distribution, so no draw is ever rejected.

        >>> words = ElmanGrammar(length_quotas={3: 1}).sample(1, random_state=1)[0]
        >>> len(words), words[-1]
        (4, '.')
        """
        Count(0).check("n_sentences", n_sentences)
        check_memory(f"{n_sentences} sentences", 100 * n_sentences, "draw fewer")
        numbers = uniforms(random_state)
        return [self._process.draw(numbers) for _ in range(n_sentences)]

    def next_word_distribution(self, prefix: Sequence[str] = ()) -> Floats:
        """Return the exact probabilities (24,) of the next word, in the order of ``vocabulary``.

        ``prefix`` holds the words so far; what follows its last full stop counts, so an empty
        prefix or one that ends with "." asks for the first word of a sentence. The condition on
        the length is included: with at least three words to a sentence, "lives" cannot follow
        "John" below. Raises ValueError for a prefix that no sentence starts with.

        >>> grammar = ElmanGrammar()
        >>> after = grammar.next_word_distribution(["John"])
        >>> sorted(word for word, p in zip(grammar.vocabulary, after) if p > 0)
        ['chases', 'feeds', 'hears', 'sees']
        """
        words = [prefix] if isinstance(prefix, str) else list(prefix)
        start = len(words) - words[::-1].index(END) if END in words else 0
        *_, state = self._process.walk(self.encode([words[start:]]).tolist())
        return state.probabilities.copy()

    def encode(self, sentences: Iterable[Iterable[str]]) -> NDArray[np.int32]:
        """Return all sentences as one sequence of tokens (T,) int32, positions in ``vocabulary``.

        >>> ElmanGrammar().encode([["boys", "walk", "."], ["Mary", "lives", "."]]).tolist()
        [4, 20, 23, 9, 19, 23]
        """
        try:
            tokens = [self._token[word] for words in sentences for word in words]
        except KeyError as error:
            raise ValueError(
                f"{error.args[0]!r} is not in the vocabulary: {' '.join(self.vocabulary)}"
            ) from None
        return np.array(tokens, dtype=np.int32)

    def decode(self, tokens: Iterable[int]) -> list[str]:
        """Return the words of the tokens."""
        return [self.vocabulary[token] for token in tokens]

    def oracle(self, tokens: Tokens) -> Floats:
        """Return exact distributions (T - 1, 24): row t of ``tokens[t + 1]`` given what precedes.

        ``tokens`` (T,) is one long sequence that starts with a sentence, as ``encode`` makes it.
        Raises ValueError for a sequence that the process cannot produce.

        >>> grammar = ElmanGrammar()
        >>> tokens = grammar.encode(grammar.sample(3, random_state=0))
        >>> grammar.oracle(tokens).shape == (len(tokens) - 1, 24)
        True
        """
        words = checked_tokens(tokens, len(self.vocabulary)).tolist()
        states = list(self._process.walk(words))[1:-1]
        rows = [state.probabilities for state in states]
        return np.array(rows).reshape(len(rows), len(self.vocabulary))

    def oracle_log_likelihood(self, tokens: Tokens) -> Floats:
        """Return natural-log probabilities (T - 1,) of ``tokens[1:]`` under the exact process."""
        rows = self.oracle(tokens)
        return np.log(rows[np.arange(len(rows)), np.asarray(tokens)[1:]])

    def oracle_perplexity(self, sentences: Iterable[Iterable[str]]) -> float:
        """Return the perplexity of the exact process on the sentences, the floor for every model.

        The sentences are one long sequence, and every token but the very first is predicted: the
        same tokens as a language model predicts on it.
        """
        scores = self.oracle_log_likelihood(self.encode(sentences))
        if not len(scores):
            raise ValueError("perplexity needs at least two tokens, got fewer")
        return float(np.exp(-scores.mean()))


def _length_weights(free: Floats, quotas: Mapping[int, float] | None, min_length: int) -> Floats:
    """Return weights of lengths relative to the bare grammar, with ``weights @ free == 1``.

    ``free`` (max_length + 1,) is the probability of each length in the bare grammar.
    """
    weights = np.zeros_like(free)
    if quotas is None:
        weights[min_length:] = 1.0
    else:
        for length, quota in quotas.items():
            _check_quota(length, quota, free, min_length)
            if quota:
                weights[length] = quota / free[length]
        if not weights.any():
            raise ValueError("length_quotas must hold at least one positive weight, got none")
    mass = float(weights @ free)
    if not mass > 0:
        raise ValueError(f"no sentence of this grammar has {min_length} to {len(free) - 1} words")
    return weights / mass


def _check_quota(length: int, quota: float, free: Floats, min_length: int) -> None:
    WEIGHT.check(f"the quota of length {length}", quota)
    if quota and not min_length <= length < len(free):
        raise ValueError(
            f"length_quotas ask for length {length}, outside [{min_length}, {len(free) - 1}]: "
            "change min_length or max_length"
        )
    if quota and not free[length] > 0:
        raise ValueError(f"no sentence of this grammar has {length} words, got a quota for it")


def _distribution(name: str, probabilities: Mapping[str, float] | None) -> dict[str, float]:
    """Return complete probabilities, named as the default's and summing to one."""
    default = _DEFAULTS[name]
    if probabilities is None:
        return dict(default)
    unknown = set(probabilities) - set(default)
    if unknown:
        raise ValueError(f"{name} takes {sorted(default)}, got {sorted(unknown)}")
    full = {
        kind: _probability(f"{name}[{kind!r}]", probabilities.get(kind, 0.0)) for kind in default
    }
    total = sum(full.values())
    if not np.isclose(total, 1.0, rtol=0, atol=1e-9):
        raise ValueError(f"the probabilities of {name} must sum to 1, got {total:g}")
    return full


def _probability(name: str, value: float) -> float:
    Number(0, 1).check(name, value)
    return float(value)
