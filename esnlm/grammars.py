"""Artificial languages: what generates them, and the exact distribution of their next word."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

RandomState: TypeAlias = "int | np.random.Generator | np.random.RandomState | None"
Floats: TypeAlias = NDArray[np.float64]
Stack: TypeAlias = tuple[str, ...]

END = "."
WHO = "who"
NUMBERS = ("singular", "plural")

#: Word class -> its words, in the order of the vocabulary (Elman 1991, table 1).
LEXICON: Mapping[str, tuple[str, ...]] = {
    "noun singular": ("boy", "girl", "cat", "dog"),
    "noun plural": ("boys", "girls", "cats", "dogs"),
    "proper": ("John", "Mary"),
    "verb required singular": ("chases", "feeds"),
    "verb required plural": ("chase", "feed"),
    "verb optional singular": ("sees", "hears"),
    "verb optional plural": ("see", "hear"),
    "verb none singular": ("walks", "lives"),
    "verb none plural": ("walk", "live"),
    "who": (WHO,),
    "end": (END,),
}

#: Sentences of each length (words without the full stop) in the corpus of Rachez & Hagiwara.
RACHEZ_LENGTHS: Mapping[int, float] = {3: 150, 4: 350, 5: 50, 6: 1250, 7: 2250, 8: 750, 9: 500}


@dataclass(frozen=True)
class _Rule:
    """One way on for a symbol: at most one word, then the symbols left to expand after it."""

    probability: float
    word: str | None
    then: Stack = ()


@dataclass
class _State:
    """A stack of pending symbols after ``n_words`` words, and what may follow it."""

    stack: Stack
    n_words: int
    probabilities: Floats
    cumulative: list[float]
    choices: list[int]
    successors: dict[int, Stack] = field(default_factory=dict)


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
    from the required and the optional ones in proportion) and no other object follows it (Elman
    1991, section 3.2). The subject of an object relative may itself carry a relative clause.

    A sentence is drawn from this probabilistic grammar *conditioned on its length*, counted in
    words without the full stop. Without ``length_quotas`` the condition is that the length lies
    in ``[min_length, max_length]``. With quotas the length is drawn first, in proportion to the
    quotas, then the sentence from the grammar conditioned on that length. Sentences are
    independent, so a corpus is shuffled as it stands.

    Parameters
    ----------
    noun_phrase : probabilities of ``proper``, ``noun`` and ``relative`` (noun with a clause).
    relative_clause : probabilities of ``subject`` and ``object`` relatives.
    verb : probabilities of the kinds ``required``, ``optional`` and ``none`` (of an object).
    object_probability : probability that an optional verb takes an object.
    plural_probability : probability that a common noun is plural.
    word_weights : word -> weight among the words of its class; unnamed words weigh 1.
    length_quotas : length -> weight, or None to keep the lengths of the grammar.
    min_length, max_length : bounds of the length in words, without the full stop.

    Attributes
    ----------
    vocabulary : tuple of 24 words; the position of a word is its token.
    word_class : word -> its class (a key of ``LEXICON``).

    Raises
    ------
    ValueError : probabilities that are negative or do not sum to one, a length that no sentence
        has, words that are not in the vocabulary.

    References
    ----------
    J. L. Elman (1991), Distributed representations, simple recurrent networks, and grammatical
    structure. M. H. Tong et al. (2007), Learning grammatical structure with echo state networks.
    A. Rachez and M. Hagiwara, section 4.1.

    Examples
    --------
    >>> grammar = ElmanGrammar()
    >>> len(grammar.sample(100, random_state=0))
    100
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
        length_quotas: Mapping[int, float] | None = RACHEZ_LENGTHS,
        min_length: int = 3,
        max_length: int = 9,
    ) -> None:
        default_np = {"proper": 0.25, "noun": 0.35, "relative": 0.4}
        default_verb = {"required": 1 / 3, "optional": 1 / 3, "none": 1 / 3}
        self.noun_phrase = _distribution("noun_phrase", noun_phrase, default_np)
        self.relative_clause = _distribution(
            "relative_clause", relative_clause, {"subject": 0.5, "object": 0.5}
        )
        self.verb = _distribution("verb", verb, default_verb)
        self.object_probability = _probability("object_probability", object_probability)
        self.plural_probability = _probability("plural_probability", plural_probability)
        self.vocabulary: tuple[str, ...] = tuple(chain.from_iterable(LEXICON.values()))
        self.word_class: dict[str, str] = {
            word: kind for kind, words in LEXICON.items() for word in words
        }
        self._token = {word: token for token, word in enumerate(self.vocabulary)}
        self._shares = self._lexical_shares(word_weights or {})
        if not 1 <= min_length <= max_length:
            raise ValueError(
                f"lengths must satisfy 1 <= min_length <= max_length, got {min_length} "
                f"and {max_length}"
            )
        self.min_length, self.max_length = int(min_length), int(max_length)
        self._rules = self._productions()
        self._symbol_lengths = self._length_distributions()
        self._stack_lengths: dict[Stack, Floats] = {(): _unit(self.max_length)}
        self._length_weights = self._condition(length_quotas)
        self._states: dict[tuple[Stack, int], _State] = {}

    # The grammar, each production emitting its first word (Greibach normal form).

    def _lexical_shares(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Probability of each word given its class."""
        for word, weight in weights.items():
            if word not in self._token:
                raise ValueError(f"word_weights names {word!r}, which is not in the vocabulary")
            if not weight >= 0 or not np.isfinite(weight):
                raise ValueError(f"the weight of {word!r} must be finite and >= 0, got {weight}")
        shares: dict[str, float] = {}
        for kind, words in LEXICON.items():
            total = sum(weights.get(word, 1.0) for word in words)
            if total <= 0:
                raise ValueError(f"word_weights leave no word in the class {kind!r}")
            shares |= {word: weights.get(word, 1.0) / total for word in words}
        return shares

    def _productions(self) -> dict[str, list[_Rule]]:
        verbs = {number: self._verbs(number) for number in NUMBERS}
        main = self._noun_phrases({number: (f"VP {number}",) for number in NUMBERS})
        gapped = self._noun_phrases({number: (f"gap {number}",) for number in NUMBERS})
        objects = self._noun_phrases(dict.fromkeys(NUMBERS, ()))
        common = self.noun_phrase["noun"] + self.noun_phrase["relative"]
        relative = self.noun_phrase["relative"] / common if common else 0.0
        rules = {"S": main, "object": objects}
        rules["(object)"] = [
            *_scaled(objects, self.object_probability),
            _Rule(1 - self.object_probability, None),
        ]
        for number in NUMBERS:
            rules[f"(RC {number})"] = [
                _Rule(relative, WHO, (f"who {number}",)),
                _Rule(1 - relative, None),
            ]
            rules[f"who {number}"] = [
                *_scaled(verbs[number], self.relative_clause["subject"]),
                *_scaled(gapped, self.relative_clause["object"]),
            ]
            rules[f"VP {number}"] = verbs[number]
            rules[f"gap {number}"] = self._gap_verbs(number)
        return {symbol: [r for r in several if r.probability] for symbol, several in rules.items()}

    def _noun_phrases(self, follow: Mapping[str, Stack]) -> list[_Rule]:
        """NP, then ``follow[number]``; whether a clause follows a noun is left to the next word."""
        rules = [
            _Rule(self.noun_phrase["proper"] * self._shares[word], word, follow["singular"])
            for word in LEXICON["proper"]
        ]
        common = self.noun_phrase["noun"] + self.noun_phrase["relative"]
        for number, share in zip(
            NUMBERS, (1 - self.plural_probability, self.plural_probability), strict=True
        ):
            rules += [
                _Rule(
                    common * share * self._shares[word], word, (f"(RC {number})", *follow[number])
                )
                for word in LEXICON[f"noun {number}"]
            ]
        return rules

    def _verbs(self, number: str) -> list[_Rule]:
        follow = {"required": ("object",), "optional": ("(object)",), "none": ()}
        return [
            _Rule(self.verb[kind] * self._shares[word], word, then)
            for kind, then in follow.items()
            for word in LEXICON[f"verb {kind} {number}"]
        ]

    def _gap_verbs(self, number: str) -> list[_Rule]:
        """Verbs of an object relative: those that can take an object, which is the head noun."""
        transitive = self.verb["required"] + self.verb["optional"]
        if not transitive and self.relative_clause["object"]:
            raise ValueError(
                "object relatives need verbs that take an object: give verb['required'] or "
                "verb['optional'] a probability, or set relative_clause['object'] to 0"
            )
        return [
            _Rule(self.verb[kind] / transitive * self._shares[word], word)
            for kind in ("required", "optional")
            for word in LEXICON[f"verb {kind} {number}"]
            if transitive
        ]

    # Lengths.

    def _length_distributions(self) -> dict[str, Floats]:
        """Symbol -> probability (max_length + 1,) that it yields exactly that many words.

        Every production but the empty one emits a word, so after k rounds all lengths below k
        are exact.
        """
        kinds: dict[str, dict[tuple[bool, Stack], float]] = {}
        for symbol, rules in self._rules.items():
            kinds[symbol] = {}
            for rule in rules:
                kind = (rule.word is not None, rule.then)
                kinds[symbol][kind] = kinds[symbol].get(kind, 0.0) + rule.probability
        size = self.max_length + 1
        lengths = {symbol: np.zeros(size) for symbol in kinds}
        for _ in range(size + 1):
            new = {}
            for symbol, weights in kinds.items():
                total = np.zeros(size)
                for (emits, then), weight in weights.items():
                    part = _convolve([lengths[below] for below in then], size)
                    total += weight * (np.concatenate([[0.0], part[:-1]]) if emits else part)
                new[symbol] = total
            lengths = new
        return lengths

    def _lengths_of(self, stack: Stack) -> Floats:
        if stack not in self._stack_lengths:
            top = self._symbol_lengths[stack[0]]
            self._stack_lengths[stack] = _convolve([top, self._lengths_of(stack[1:])], len(top))
        return self._stack_lengths[stack]

    def _condition(self, quotas: Mapping[int, float] | None) -> Floats:
        """Weight (max_length + 1,) of a sentence of each length, relative to the bare grammar."""
        free = self._lengths_of(("S",))
        weights = np.zeros_like(free)
        if quotas is None:
            weights[self.min_length :] = 1.0
        else:
            _check_quotas(quotas, free, self.min_length)
            total = float(sum(quotas.values()))
            for length, quota in quotas.items():
                if quota:
                    weights[length] = quota / total / free[length]
        mass = float(weights @ free)
        if not mass > 0:
            raise ValueError(
                f"no sentence of this grammar has {self.min_length} to {self.max_length} words"
            )
        return weights / mass

    @property
    def length_distribution(self) -> dict[int, float]:
        """Probability of each sentence length (words without the full stop), zeros left out."""
        joint = self._length_weights * self._lengths_of(("S",))
        return {length: float(p) for length, p in enumerate(joint) if p > 0}

    @property
    def mean_length(self) -> float:
        """Expected number of words of a sentence, without the full stop."""
        return sum(length * p for length, p in self.length_distribution.items())

    # The process, word by word.

    def _state(self, stack: Stack, n_words: int) -> _State:
        key = (stack, n_words)
        if key not in self._states:
            self._states[key] = self._expand(stack, n_words)
        return self._states[key]

    def _expand(self, stack: Stack, n_words: int) -> _State:
        """P(word | prefix) = P(rule) h(rest after it) / h(stack), h being ``_mass``."""
        probabilities = np.zeros(len(self.vocabulary))
        successors: dict[int, Stack] = {}
        skipped, rest = 1.0, stack
        while rest:
            empty = 0.0
            for rule in self._rules[rest[0]]:
                if rule.word is None:
                    empty += rule.probability
                    continue
                after = rule.then + rest[1:]
                token = self._token[rule.word]
                mass = skipped * rule.probability * self._mass(after, n_words + 1)
                if mass:
                    probabilities[token] += mass
                    successors[token] = after
            skipped, rest = skipped * empty, rest[1:]
            if not skipped:
                break
        if not rest and skipped:
            probabilities[self._token[END]] = skipped * self._mass((), n_words)
        probabilities /= probabilities.sum()
        choices = np.flatnonzero(probabilities)
        cumulative = np.cumsum(probabilities[choices])
        cumulative[-1] = 1.0
        return _State(
            stack, n_words, probabilities, cumulative.tolist(), choices.tolist(), successors
        )

    def _mass(self, stack: Stack, n_words: int) -> float:
        """Conditioned mass of all ways to finish a sentence that has ``n_words`` words so far."""
        if n_words > self.max_length:
            return 0.0
        left = self._length_weights[n_words:]
        return float(left @ self._lengths_of(stack)[: len(left)])

    def _start(self) -> _State:
        return self._state(("S",), 0)

    def _next(self, state: _State, token: int) -> _State:
        """State after one more token, which must be possible."""
        if not state.probabilities[token] > 0:
            possible = " ".join(self.vocabulary[choice] for choice in state.choices)
            raise ValueError(
                f"{self.vocabulary[token]!r} cannot be word {state.n_words + 1} of this sentence; "
                f"possible here: {possible}"
            )
        if self.vocabulary[token] == END:
            return self._start()
        return self._state(state.successors[token], state.n_words + 1)

    def sample(self, n_sentences: int, random_state: RandomState = None) -> list[list[str]]:
        """Draw ``n_sentences`` independent sentences: lists of words that end with the full stop.

        Each word is drawn from its exact conditional distribution, so no draw is ever rejected.

        >>> words = ElmanGrammar(length_quotas={3: 1}).sample(1, random_state=1)[0]
        >>> len(words), words[-1]
        (4, '.')
        """
        if n_sentences < 0:
            raise ValueError(f"n_sentences must be >= 0, got {n_sentences}")
        uniform = _uniform_stream(_generator(random_state))
        return [self._sample_one(uniform) for _ in range(n_sentences)]

    def _sample_one(self, uniform: Iterable[float]) -> list[str]:
        words: list[str] = []
        state = self._start()
        for u in uniform:
            token = state.choices[bisect_right(state.cumulative, u)]
            words.append(self.vocabulary[token])
            if words[-1] == END:
                break
            state = self._state(state.successors[token], state.n_words + 1)
        return words

    def next_word_distribution(self, prefix: Sequence[str] = ()) -> Floats:
        """Exact probabilities (24,) of the next word, in the order of ``vocabulary``.

        ``prefix`` holds the words so far; what follows its last full stop counts, so an empty
        prefix or one that ends with "." asks for the first word of a sentence. The condition on
        the length is included: with three words at least, "John lives" is no prefix here. Raises
        ValueError for a prefix that no sentence starts with.

        >>> grammar = ElmanGrammar()
        >>> after = grammar.next_word_distribution(["John"])
        >>> sorted(word for word, p in zip(grammar.vocabulary, after) if p > 0)
        ['chases', 'feeds', 'hears', 'sees']
        """
        words = list(prefix)
        start = len(words) - words[::-1].index(END) if END in words else 0
        state = self._start()
        for token in self.encode([words[start:]]):
            state = self._next(state, int(token))
        return state.probabilities.copy()

    # Long token sequences.

    def encode(self, sentences: Iterable[Iterable[str]]) -> NDArray[np.int32]:
        """All sentences as one sequence of tokens (T,) int32, positions in ``vocabulary``.

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
        """Words of the tokens."""
        return [self.vocabulary[token] for token in tokens]

    def oracle(self, tokens: NDArray[np.integer]) -> Floats:
        """Exact distributions (T - 1, 24): row t is that of ``tokens[t + 1]`` given what precedes.

        ``tokens`` (T,) is one long sequence that starts with a sentence, as ``encode`` makes it.
        Raises ValueError for a sequence that the process cannot produce.
        """
        tokens = _check_tokens(tokens, len(self.vocabulary))
        rows = np.empty((max(len(tokens) - 1, 0), len(self.vocabulary)))
        state = self._start()
        for row, token in zip(rows, tokens.tolist(), strict=False):
            state = self._next(state, token)
            row[:] = state.probabilities
        return rows

    def oracle_log_likelihood(self, tokens: NDArray[np.integer]) -> Floats:
        """Natural-log probability (T - 1,) of each of ``tokens[1:]`` under the exact process."""
        tokens = _check_tokens(tokens, len(self.vocabulary))
        scores = np.empty(max(len(tokens) - 1, 0))
        state = self._start()
        for position, (token, target) in enumerate(pairwise(tokens)):
            state = self._next(state, int(token))
            self._next(state, int(target))
            scores[position] = state.probabilities[target]
        return np.log(scores)

    def oracle_perplexity(self, sentences: Iterable[Iterable[str]]) -> float:
        """Perplexity of the exact process on the sentences, the floor for every model.

        The sentences are one long sequence, and every token but the very first is predicted: the
        same tokens as a language model predicts on it.
        """
        scores = self.oracle_log_likelihood(self.encode(sentences))
        if not len(scores):
            raise ValueError("perplexity needs at least two tokens, got fewer")
        return float(np.exp(-scores.mean()))


def _distribution(
    name: str, given: Mapping[str, float] | None, default: Mapping[str, float]
) -> dict[str, float]:
    """The given probabilities, complete, named as the default's and summing to one."""
    if given is None:
        return dict(default)
    unknown = set(given) - set(default)
    if unknown:
        raise ValueError(f"{name} takes {sorted(default)}, got {sorted(unknown)}")
    full = {kind: _probability(f"{name}[{kind!r}]", given.get(kind, 0.0)) for kind in default}
    total = sum(full.values())
    if not np.isclose(total, 1.0, rtol=0, atol=1e-9):
        raise ValueError(f"the probabilities of {name} must sum to 1, got {total:g}")
    return full


def _probability(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")
    return float(value)


def _check_quotas(quotas: Mapping[int, float], free: Floats, min_length: int) -> None:
    for length, quota in quotas.items():
        if not quota >= 0 or not np.isfinite(quota):
            raise ValueError(f"the quota of length {length} must be finite and >= 0, got {quota}")
        if quota and not min_length <= length < len(free):
            raise ValueError(
                f"length_quotas ask for length {length}, outside [{min_length}, {len(free) - 1}]: "
                "change min_length or max_length"
            )
        if quota and not free[length] > 0:
            raise ValueError(f"no sentence of this grammar has {length} words, got a quota for it")
    if not sum(quotas.values()) > 0:
        raise ValueError("length_quotas must hold at least one positive weight, got none")


def _check_tokens(tokens: NDArray[np.integer], n_tokens: int) -> NDArray[np.integer]:
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(f"tokens must be 1-D integers, got {tokens.ndim}-D {tokens.dtype}")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < n_tokens):
        raise ValueError(
            f"tokens must lie in [0, {n_tokens}), got {tokens.min()} to {tokens.max()}"
        )
    return tokens


def _scaled(rules: Iterable[_Rule], factor: float) -> list[_Rule]:
    return [_Rule(rule.probability * factor, rule.word, rule.then) for rule in rules]


def _unit(max_length: int) -> Floats:
    unit = np.zeros(max_length + 1)
    unit[0] = 1.0
    return unit


def _convolve(parts: Sequence[Floats], size: int) -> Floats:
    """Distribution of a sum of independent lengths, cut at ``size``."""
    total = _unit(size - 1)
    for part in parts:
        total = np.convolve(total, part)[:size]
    return total


def _generator(random_state: RandomState) -> np.random.Generator:
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    return np.random.default_rng(random_state)


def _uniform_stream(rng: np.random.Generator, block: int = 4096) -> Iterable[float]:
    while True:
        yield from rng.random(block).tolist()
