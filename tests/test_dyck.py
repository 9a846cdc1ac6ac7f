"""The Dyck grammar against sums over all derivations, and the shares of what it draws."""

import json
from collections import Counter
from functools import cache
from itertools import pairwise, product, takewhile

import numpy as np
import pandas as pd
import pytest

from esnlm.__main__ import main
from esnlm.grammars.dyck import BRACKETS, PAIRS, DyckGrammar, allowed_closers, bracket_distances
from esnlm.studies.dyck.plots import _lines
from esnlm.studies.dyck.stack import bracket_pairs, stack_reservoir

SETTINGS = [(0.25, 0.25, 0.25), (0.3, 0.1, 0.2), (0.35, 0.35, 0.2), (0.1, 0.2, 0.6)]
LONGEST = 8


def is_balanced(word):
    while "()" in word or "[]" in word:
        word = word.replace("()", "").replace("[]", "")
    return not word


def all_sequences():
    for n_brackets in range(LONGEST + 1):
        for brackets in product("()[]", repeat=n_brackets):
            if is_balanced("".join(brackets)):
                yield "".join(brackets)


SEQUENCES = list(all_sequences())


def probabilities(p1, p2, q, min_length):
    """Share of each sequence among those within bounds: all derivations, by the productions."""
    nothing = 0.0
    for _ in range(5000):  # derivations of nothing, deeper and deeper
        nothing = 1 - p1 - p2 - q + q * nothing**2

    @cache
    def derived(word):
        if not word:
            return nothing
        if not is_balanced(word):
            return 0.0
        total = q * sum(derived(word[:i]) * derived(word[i:]) for i in range(1, len(word)))
        for share, pair in ((p1, PAIRS[0]), (p2, PAIRS[1])):
            if word[0] + word[-1] == pair:
                total += share * derived(word[1:-1])
        # S -> S S with nothing on either side is the word itself again.
        return total / (1 - 2 * q * nothing)

    weights = {word: derived(word) for word in SEQUENCES if len(word) >= min_length}
    total = sum(weights.values())
    return {word: weight / total for word, weight in weights.items()}


def grammar_of(setting, min_length=2):
    return DyckGrammar(
        **dict(zip(("p1", "p2", "q"), setting, strict=True)),
        min_length=min_length,
        max_length=LONGEST,
    )


def test_there_are_as_many_sequences_as_catalan_numbers_say():
    assert Counter(map(len, SEQUENCES)) == {0: 1, 2: 2, 4: 2 * 4, 6: 5 * 8, 8: 14 * 16}


@pytest.mark.parametrize("min_length", [0, 2, 5])
@pytest.mark.parametrize("setting", SETTINGS)
def test_sequences_are_as_likely_as_their_derivations(setting, min_length):
    grammar = grammar_of(setting, min_length)
    expected = probabilities(*setting, min_length)
    for word in SEQUENCES[:: 1 + 2 * (min_length > 2)]:
        found = np.exp(grammar.log_probability(word))
        assert found == pytest.approx(expected.get(word, 0.0), rel=1e-9)


# Long tails of short pairs, and sums that cancel in the quadratic formula.
@pytest.mark.parametrize("setting", [*SETTINGS, (5e-5, 5e-5, 0.5), (0.25, 0.25, 1e-12)])
def test_the_next_bracket_is_a_sum_over_all_sequences(setting):
    grammar = grammar_of(setting)
    expected = probabilities(*setting, 2)
    for prefix in ("", "(", "()", "[(", "()[]", "((([", "[]()[]"):
        row = dict.fromkeys(grammar.vocabulary, 0.0)
        for word, share in expected.items():
            if word.startswith(prefix):
                row[(word + ".")[len(prefix)]] += share
        total = sum(row.values())
        np.testing.assert_allclose(
            grammar.next_word_distribution(prefix), [p / total for p in row.values()], atol=1e-12
        )


def test_the_oracle_is_every_prefix():
    grammar = DyckGrammar()
    rows = grammar.oracle("([])[]")
    assert rows.shape == (7, 5)
    np.testing.assert_allclose(rows.sum(axis=1), 1)
    np.testing.assert_array_equal(rows[3], grammar.next_word_distribution("([]"))


@pytest.mark.parametrize("setting", SETTINGS)
def test_samples_have_their_probabilities(setting):
    n = 4000
    counts = Counter(grammar_of(setting).sample(n, random_state=0))
    expected = probabilities(*setting, 2)
    frequent = {word: share for word, share in expected.items() if share > 0.003}
    deviations = [
        (counts[word] - n * share) / np.sqrt(n * share * (1 - share))
        for word, share in frequent.items()
    ]
    assert len(deviations) > 5
    assert np.abs(deviations).max() < 4.5
    assert np.mean(np.square(deviations)) < 2


def test_the_settings_of_the_paper_reach_its_bounds():
    sequences = DyckGrammar().sample(3000, random_state=1)
    lengths = np.array([len(sequence) for sequence in sequences])
    assert lengths.min() == 2
    assert 150 < lengths.max() <= 200
    assert all(map(is_balanced, sequences))


def test_a_sampled_long_sequence_is_possible():
    grammar = DyckGrammar()
    longest = max(grammar.sample(500, random_state=2), key=len)
    assert -1000 < grammar.log_probability(longest) < 0
    assert grammar.log_probability("()") > np.log(0.05)


def test_the_longest_length_costs_a_sampler_nothing():
    sequences = DyckGrammar(max_length=10**6).sample(50, random_state=0)
    first = list(takewhile(lambda sequence: len(sequence) <= 200, sequences))
    assert len(first) > 5
    assert first == DyckGrammar(max_length=200).sample(len(first), random_state=0)


def test_sampling_is_repeatable_and_may_be_distinct():
    grammar = DyckGrammar()
    assert grammar.sample(20, random_state=3) == grammar.sample(20, random_state=3)
    first = grammar.sample(200, random_state=4, distinct=True)
    assert len(set(first)) == 200
    second = grammar.sample(200, random_state=4, distinct=True, unlike=set(first))
    assert not set(first) & set(second)


def test_allowed_closers_are_those_that_may_follow():
    grammar = DyckGrammar()
    for sequence in grammar.sample(20, random_state=5):
        if len(sequence) > 60:
            continue
        allowed = allowed_closers(sequence)
        rows = grammar.oracle(sequence)[1:]
        np.testing.assert_array_equal(allowed, rows[:, [1, 3]] > 0)


def test_distances_of_pairs():
    assert bracket_distances("[(()[])]").tolist() == [1, 1, 5, 7]
    assert bracket_distances("").tolist() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p1": 0.0}, r"p1 must lie in \(0, 1\), got 0"),
        ({"p1": 0.5, "p2": 0.3, "q": 0.2}, "p1 \\+ p2 \\+ q must be below 1, got 1"),
        ({"max_length": 1}, "max_length must be an integer of at least 2, got 1"),
        ({"min_length": 3, "max_length": 3}, "no sequence has 3"),
    ],
)
def test_settings_that_make_no_grammar(arguments, message):
    with pytest.raises(ValueError, match=message):
        DyckGrammar(**arguments)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("(]", "']' cannot be bracket 2"),
        (")", r"'\)' cannot be bracket 1"),
        ("x", "'x' cannot be bracket 1"),
        ("((((((", "no sequence of 8 brackets starts like this"),
    ],
)
def test_prefixes_that_no_sequence_has(prefix, message):
    with pytest.raises(ValueError, match=message):
        DyckGrammar(max_length=8).next_word_distribution(prefix)


def tokens_of(sequence):
    return np.array([BRACKETS.index(bracket) for bracket in sequence])


@pytest.mark.parametrize("leak", [0.3, ("inverse_gamma", 0.56)])
def test_states_of_a_stack_depend_on_open_brackets_alone(leak):
    reservoir = stack_reservoir(16, leak, [(0, 1), (2, 3)], random_state=3)

    def cells(sequence):
        states = reservoir.transform(tokens_of(sequence))[-1]
        return states[:8] + states[8:]

    for sequence in DyckGrammar(max_length=100).sample(20, random_state=5):
        pending: list[str] = []
        for t, bracket in enumerate(sequence):
            pending.append(bracket) if bracket in "([" else pending.pop()
            expected = cells("".join(pending)) if pending else np.zeros(8)
            np.testing.assert_allclose(cells(sequence[: t + 1]), expected, atol=1e-4)


def nested(n_kinds, n_pairs):
    """All balanced sequences, an opener the number of its kind, its closer minus that."""
    if not n_pairs:
        return [[]]
    return [
        [kind, *inside, -kind, *after]
        for n_inside in range(n_pairs)
        for inside in nested(n_kinds, n_inside)
        for after in nested(n_kinds, n_pairs - 1 - n_inside)
        for kind in range(1, n_kinds + 1)
    ]


@pytest.mark.parametrize("n_kinds", [1, 2, 3])
def test_pairs_are_those_of_any_numbering_or_an_error(n_kinds):
    rng = np.random.default_rng(n_kinds)
    words = [word for n_pairs in range(4) for word in nested(n_kinds, n_pairs)]
    assert len(words) == 1 + n_kinds + 2 * n_kinds**2 + 5 * n_kinds**3
    outcomes = Counter()
    for n_words in (*range(2, 12), 40, len(words)) * 8:
        openers = range(1, n_kinds + 1)
        brackets = (*openers, *(-opener for opener in openers))
        token = dict(zip(brackets, rng.permutation(2 * n_kinds).tolist(), strict=True))
        sample = [words[i] for i in rng.permutation(len(words))[:n_words]]
        sequences = [np.array([token[b] for b in word], dtype=int) for word in sample]
        kinds = {abs(bracket) for word in sample for bracket in word}
        directly = {a for word in sample for a, b in pairwise(word) if a + b == 0 and a > 0}
        enough = bool(kinds) and kinds == directly & {word[0] for word in sample if word}
        outcomes[enough] += 1
        if enough:
            assert bracket_pairs(sequences) == sorted((token[k], token[-k]) for k in kinds)
        else:
            with pytest.raises(ValueError, match="must show one closer for each opener"):
                bracket_pairs(sequences)
    assert outcomes[True] > 5
    assert n_kinds == 1 or outcomes[False] > 5


def test_a_stack_of_odd_size_or_without_memory():
    with pytest.raises(ValueError, match="units must be even for a stack"):
        stack_reservoir(7, 0.3, [(0, 1)], 0)
    with pytest.raises(ValueError, match="leak rates of a stack must be below 1"):
        stack_reservoir(8, 1.0, [(0, 1)], 0)


def test_a_linear_readout_of_a_stack_gets_every_sequence_right(tmp_path):
    options = "--models esn stack --readouts ridge softmax --leaks 0.3 uniform:0:0.9 --units 16"
    sizes = "--seeds 1 --train 300 --validation 50 --test 300 --max-length 200"
    argv = ["dyck", "--out", str(tmp_path), *options.split(), *sizes.split()]
    assert main(argv) == 0
    table = pd.read_csv(tmp_path / "dyck.csv")
    right = table.set_index(["model", "leak", "readout"])["right"]
    assert len(right) == 8
    assert (right["stack"] == 1).all()
    assert right["esn"].max() < 0.3
    scales = table[(table["model"] == "stack") & (table["leak"] == "0.3")]["timescale_quantiles"]
    np.testing.assert_allclose(json.loads(scales.iloc[0]), -1 / np.log(0.7), atol=1e-3)
    assert (tmp_path / "dyck.png").stat().st_size > 10_000


def test_lines_show_the_law_of_the_best_validation():
    common = {"model": "esn", "readout": "ridge", "seed": 0}
    rows = [
        common | {"leak": leak, "n_units": size, "validation_right": share, "right": 1 - share}
        for leak, size, share in [("0.3", 8, 0.1), ("1", 8, 0.2), ("0.3", 16, 0.4), ("1", 16, 0.3)]
    ]
    ((name, runs),) = _lines(pd.DataFrame(rows))
    assert name == "ESN, ridge"
    assert runs["right"].tolist() == [0.8, 0.6]
