"""The grammar's oracle against enumeration by plain recursive expansion, and its samples."""

import pickle
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest

from esnlm.grammars.elman import AUTHOR_LENGTHS, LEXICON, PAPER_LENGTHS, ElmanGrammar

SKEWED = {
    "noun_phrase": {"proper": 0.2, "noun": 0.3, "relative": 0.5},
    "relative_clause": {"subject": 0.3, "object": 0.7},
    "verb": {"required": 0.5, "optional": 0.3, "none": 0.2},
    "object_probability": 0.35,
    "plural_probability": 0.7,
    "word_weights": {"boy": 3.0, "Mary": 0.5, "walk": 0.0},
}
PLAIN = {
    "noun_phrase": {"proper": 0.2, "noun": 0.4, "relative": 0.4},
    "relative_clause": {"subject": 0.5, "object": 0.5},
    "verb": {"required": 1 / 3, "optional": 1 / 3, "none": 1 / 3},
    "object_probability": 0.5,
    "plural_probability": 0.5,
    "word_weights": {},
}
LITERAL = {**SKEWED, "gaps": False}
MOST_WORDS = 6


class Expansion:
    """All phrases of up to ``MOST_WORDS`` words with their probabilities, rule by rule."""

    def __init__(self, settings):
        self.of = settings

    def words(self, kind):
        weights = {word: self.of["word_weights"].get(word, 1.0) for word in LEXICON[kind]}
        total = sum(weights.values())
        return [((word,), weight / total) for word, weight in weights.items() if weight]

    def times(self, factor, *parts):
        found = [((), factor)]
        for part in parts:
            found = [
                (left + right, p * q)
                for left, p in found
                for right, q in part
                if len(left) + len(right) <= MOST_WORDS
            ]
        return found

    @cache  # noqa: B019
    def noun_phrase(self, number, room):
        """NP of the given number within ``room`` words; probability includes the number's."""
        if room < 1:
            return []
        share = self.of["plural_probability"]
        share = share if number == "plural" else 1 - share
        of = self.of["noun_phrase"]
        nouns = self.words(f"noun {number}")
        found = self.times(of["noun"] * share, nouns)
        if number == "singular":
            found += self.times(of["proper"], self.words("proper"))
        if room >= 3:
            found += self.times(of["relative"] * share, nouns, self.relative(number, room - 1))
        return found

    def relative(self, number, room):
        who = [(("who",), 1.0)]
        of = self.of["relative_clause"]
        found = self.times(of["subject"], who, self.verb_phrase(number, room - 1))
        transitive = self.of["verb"]["required"] + self.of["verb"]["optional"]
        for other in ("singular", "plural"):
            if not self.of.get("gaps", True):
                for taken in range(1, room - 1):
                    subjects = [p for p in self.noun_phrase(other, taken) if len(p[0]) == taken]
                    inside = self.verb_phrase(other, room - 1 - taken)
                    found += self.times(of["object"], who, subjects, inside)
                continue
            for kind in ("required", "optional"):
                share = of["object"] * self.of["verb"][kind] / transitive
                subjects = self.noun_phrase(other, room - 2)
                found += self.times(share, who, subjects, self.words(f"verb {kind} {other}"))
        return found

    def verb_phrase(self, number, room):
        objects = self.noun_phrase("singular", room - 1) + self.noun_phrase("plural", room - 1)
        of, take = self.of["verb"], self.of["object_probability"]
        verbs = {kind: self.words(f"verb {kind} {number}") for kind in of}
        return (
            self.times(of["none"], verbs["none"])
            + self.times(of["optional"] * (1 - take), verbs["optional"])
            + self.times(of["optional"] * take, verbs["optional"], objects)
            + self.times(of["required"], verbs["required"], objects)
        )

    def sentences(self):
        found = defaultdict(float)
        for number in ("singular", "plural"):
            subjects = self.noun_phrase(number, MOST_WORDS - 1)
            for words, p in self.times(1.0, subjects, self.verb_phrase(number, MOST_WORDS - 1)):
                found[words] += p
        return dict(found)


@pytest.fixture(scope="module", params=[PLAIN, SKEWED, LITERAL], ids=["plain", "skewed", "literal"])
def enumerated(request):
    settings = request.param
    return settings, Expansion(settings).sentences()


def conditioned(sentences, quotas, shortest):
    by_length = defaultdict(float)
    for words, p in sentences.items():
        by_length[len(words)] += p
    if quotas is None:
        total = sum(p for length, p in by_length.items() if length >= shortest)
        return {words: p / total for words, p in sentences.items() if len(words) >= shortest}
    total = sum(quotas.values())
    return {
        words: p / by_length[len(words)] * quotas[len(words)] / total
        for words, p in sentences.items()
        if quotas.get(len(words))
    }


@pytest.mark.parametrize(
    ("quotas", "shortest"), [(None, 3), (None, 1), ({3: 1, 5: 2.5, 6: 0.5, 4: 0}, 3)]
)
def test_next_word_distribution_is_that_of_the_enumeration(enumerated, quotas, shortest):
    settings, sentences = enumerated
    grammar = ElmanGrammar(
        **settings, length_quotas=quotas, min_length=shortest, max_length=MOST_WORDS
    )
    following = defaultdict(Counter)
    for words, p in conditioned(sentences, quotas, shortest).items():
        full = (*words, ".")
        for end, word in enumerate(full):
            following[full[:end]][word] += p
    short = [prefix for prefix in following if len(prefix) <= 3]
    long = [prefix for prefix in following if len(prefix) > 3]
    for prefix in short + long[::200]:
        counts = following[prefix]
        after = grammar.next_word_distribution(prefix)
        expected = np.array([counts[word] for word in grammar.vocabulary])
        np.testing.assert_allclose(after, expected / expected.sum(), rtol=0, atol=1e-12)


def test_lengths_are_those_of_the_enumeration(enumerated):
    settings, sentences = enumerated
    grammar = ElmanGrammar(**settings, length_quotas=None, min_length=2, max_length=MOST_WORDS)
    by_length = Counter()
    total = sum(sentences.values())
    for words, p in sentences.items():
        by_length[len(words)] += p / total
    assert grammar.length_distribution == pytest.approx(dict(by_length), abs=1e-12)


def test_sampled_sentences_are_frequent_as_enumerated():
    sentences = Expansion(SKEWED).sentences()
    quotas = {3: 1.0, 4: 1.0, 6: 2.0}
    grammar = ElmanGrammar(**SKEWED, length_quotas=quotas, max_length=MOST_WORDS)
    expected = conditioned(sentences, quotas, 3)
    n = 40_000
    counts = Counter(tuple(words[:-1]) for words in grammar.sample(n, random_state=0))
    assert set(counts) <= set(expected)
    common = [words for words, p in expected.items() if n * p > 20]
    assert len(common) > 100
    chi = [(counts[words] - n * expected[words]) / np.sqrt(n * expected[words]) for words in common]
    assert np.mean(np.square(chi)) == pytest.approx(1, abs=5 * np.sqrt(2 / len(chi)))


def test_vocabulary():
    grammar = ElmanGrammar()
    assert len(grammar.vocabulary) == len(set(grammar.vocabulary)) == 24
    assert grammar.vocabulary[-1] == "."
    assert set(grammar.word_class) == set(grammar.vocabulary)


def test_default_lengths_are_the_papers():
    grammar = ElmanGrammar()
    assert grammar.mean_length == pytest.approx(6.7, abs=1e-12)
    assert sum(PAPER_LENGTHS.values()) == 5500
    assert sum(AUTHOR_LENGTHS.values()) == 5300
    lengths = np.array([len(words) - 1 for words in grammar.sample(11_000, random_state=1)])
    assert lengths.min() == 3
    assert lengths.max() == 9
    assert lengths.mean() == pytest.approx(6.7, abs=0.06)
    free = ElmanGrammar(length_quotas=None)
    assert free.mean_length == pytest.approx(5.196, abs=1e-3)


def test_agreement_and_gaps_in_samples():
    grammar = ElmanGrammar(length_quotas=None)
    number = {word: kind.split()[-1] for word, kind in grammar.word_class.items()} | {
        "John": "singular",
        "Mary": "singular",
    }
    for words in grammar.sample(500, random_state=2):
        if "who" not in words:
            assert number[words[0]] == number[words[1]]
        assert words.count(".") == 1
    after = grammar.next_word_distribution(["boys", "who", "Mary"])
    possible = {word for word, p in zip(grammar.vocabulary, after, strict=True) if p}
    assert possible == {"chases", "feeds", "sees", "hears"}
    after = grammar.next_word_distribution(["boys", "who", "Mary", "sees"])
    possible = {word for word, p in zip(grammar.vocabulary, after, strict=True) if p}
    assert possible == {word for word in grammar.vocabulary if grammar.word_class[word] in PLURALS}


PLURALS = {"verb required plural", "verb optional plural", "verb none plural"}


def test_same_seed_same_corpus():
    first, second = ElmanGrammar().sample(50, 3), ElmanGrammar().sample(50, 3)
    assert first == second
    assert first != ElmanGrammar().sample(50, 4)
    assert first[:20] == ElmanGrammar().sample(20, np.random.default_rng(3))
    assert len(ElmanGrammar().sample(5, np.random.RandomState(0))) == 5
    assert ElmanGrammar().sample(0) == []


def test_long_sentences():
    grammar = ElmanGrammar(length_quotas=None, min_length=18, max_length=20)
    for words in grammar.sample(200, random_state=0):
        assert 18 <= len(words) - 1 <= 20
        prefix = words[: len(words) // 2]
        assert grammar.next_word_distribution(prefix).sum() == pytest.approx(1, abs=1e-12)
    only = ElmanGrammar(length_quotas={40: 1}, max_length=40)
    assert len(only.sample(1, random_state=0)[0]) == 41


def test_oracle_rows_are_next_word_distributions():
    grammar = ElmanGrammar()
    sentences = grammar.sample(40, random_state=5)
    tokens = grammar.encode(sentences)
    rows = grammar.oracle(tokens)
    words = grammar.decode(tokens)
    assert rows.shape == (len(words) - 1, 24)
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(row, grammar.next_word_distribution(words[: place + 1]))
    scores = grammar.oracle_log_likelihood(tokens)
    np.testing.assert_allclose(np.exp(scores), rows[np.arange(len(rows)), tokens[1:]])
    assert grammar.oracle_perplexity(sentences) == pytest.approx(np.exp(-scores.mean()))


def test_oracle_of_short_sequences():
    grammar = ElmanGrammar()
    assert grammar.oracle(grammar.encode([["boys"]])).shape == (0, 24)
    assert grammar.oracle(np.empty(0, dtype=np.int32)).shape == (0, 24)
    with pytest.raises(ValueError, match="at least two tokens"):
        grammar.oracle_perplexity([["boys"]])


def test_oracle_is_the_floor():
    """No other setting of the process explains its samples better."""
    grammar = ElmanGrammar()
    sentences = grammar.sample(3000, random_state=6)
    floor = grammar.oracle_perplexity(sentences)
    for other in (
        ElmanGrammar(length_quotas=None),
        ElmanGrammar(length_quotas=AUTHOR_LENGTHS),
        ElmanGrammar(**{**PLAIN, "plural_probability": 0.3}),
    ):
        assert other.oracle_perplexity(sentences) > floor


def test_prefix_across_sentences_starts_anew():
    grammar = ElmanGrammar()
    np.testing.assert_array_equal(
        grammar.next_word_distribution(["nonsense", "is", "ignored", ".", "boys"]),
        grammar.next_word_distribution(["boys"]),
    )
    np.testing.assert_array_equal(
        grammar.next_word_distribution(["boys", "see", "cats", "."]),
        grammar.next_word_distribution([]),
    )


def test_returned_distributions_are_copies():
    grammar = ElmanGrammar()
    grammar.next_word_distribution([])[:] = 7
    assert grammar.next_word_distribution([]).sum() == pytest.approx(1)


def test_pickle():
    grammar = ElmanGrammar()
    again = pickle.loads(pickle.dumps(grammar))
    assert again.sample(5, 0) == grammar.sample(5, 0)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (["boy", "see"], "'see' cannot be word 2"),
        (["John", "lives"], "'lives' cannot be word 2"),
        (["who"], "possible are: boy"),
        (["boy", "unicorn"], "'unicorn' is not in the vocabulary"),
        ("boy who", "not in the vocabulary"),
    ],
)
def test_impossible_prefix(prefix, message):
    with pytest.raises(ValueError, match=message):
        ElmanGrammar().next_word_distribution(prefix)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noun_phrase": {"proper": 0.5, "noun": 0.4}}, "noun_phrase must sum to 1, got 0.9"),
        ({"noun_phrase": {"pronoun": 1.0}}, "noun_phrase takes"),
        ({"verb": {"none": 1.0}}, "verbs that take an object"),
        ({"verb": {"none": 1.5, "optional": -0.5}}, r"must lie in \[0, 1\]"),
        ({"object_probability": 1.7}, "object_probability must lie"),
        ({"plural_probability": float("nan")}, "plural_probability must be a finite number"),
        ({"word_weights": {"unicorn": 1}}, "not in the vocabulary"),
        ({"word_weights": {"boy": -1}}, r"weight of 'boy' must lie in \[0, 1e\+30\], got -1"),
        ({"word_weights": {"boy": 1e308, "girl": 1e308}}, r"got 1e\+308"),  # their sum overflows
        ({"word_weights": {"John": 0, "Mary": 0}}, "no word in the class 'proper'"),
        ({"length_quotas": {12: 1}}, "outside"),
        ({"length_quotas": {2: 1}}, "outside"),
        ({"length_quotas": {1: 1}, "min_length": 1}, "no sentence of this grammar has 1 words"),
        ({"length_quotas": {3: -1}}, r"quota of length 3 must lie in \[0, 1e\+30\], got -1"),
        ({"length_quotas": {4: 1e308}}, r"got 1e\+308"),
        ({"length_quotas": {3: 0}}, "at least one positive"),
        ({"length_quotas": {}}, "at least one positive"),
        ({"min_length": 5, "max_length": 4}, "max_length must be from min_length, of at least 1"),
        ({"max_length": 100_000, "length_quotas": None}, "to 1000, got min_length=3 and"),
        (
            {
                "length_quotas": None,
                "verb": {"none": 1.0},
                "relative_clause": {"subject": 1.0},
                "noun_phrase": {"proper": 1.0},
            },
            "has 3 to 9 words",
        ),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        ElmanGrammar(**settings)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.array([0, 24]), "must be at least 0 and below 24"),
        (np.array([-1]), "must be at least 0 and below 24"),
        (np.array([0.0, 1.0]), "must be integers"),
        (np.array([[0, 1]]), "1-D array of integers"),
        (np.array([0, 0]), "cannot be word 2"),
    ],
)
def test_oracle_of_bad_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        ElmanGrammar().oracle(tokens)


def test_negative_number_of_sentences():
    with pytest.raises(ValueError, match="n_sentences must be an integer of at least 0"):
        ElmanGrammar().sample(-1)
