"""Measures against hand-counted values, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esnlm.evaluation.metrics import cosine_similarity, ngram_overlap, perplexity
from esnlm.evaluation.token_groups import FrequencyBins, by_frequency, judged_tokens


def binned(scores, counts, block_size=100, **settings):
    bins = FrequencyBins(block_size)
    bins.add(np.asarray(scores), np.asarray(counts))
    return bins.rows(**settings)


def test_perplexity_is_the_inverse_geometric_mean():
    assert perplexity(np.log([0.5, 0.5, 0.5, 0.25])) == pytest.approx(2 ** (5 / 4))


def test_uniform_perplexity_is_the_vocabulary():
    assert perplexity(np.full(10, -np.log(24))) == pytest.approx(24)


def test_an_impossible_token_is_infinitely_perplexing():
    assert perplexity(np.array([-np.inf, -1.0])) == np.inf


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([], "hold no token"),
        (np.empty(0), "hold no token"),
        (np.array([np.nan, -1.0]), "1 NaN"),
        (np.array([0.3]), "at most 0"),
        (np.zeros((2, 2)), "one value per token"),
    ],
)
def test_bad_log_probabilities(scores, message):
    with pytest.raises(ValueError, match=message):
        perplexity(scores)


def test_cosine_of_itself_and_of_strangers():
    rows = np.random.default_rng(0).dirichlet(np.ones(5), size=7)
    assert cosine_similarity(rows, rows) == pytest.approx(100)
    assert cosine_similarity(rows, 3 * rows) == pytest.approx(100)
    assert cosine_similarity(np.eye(3), np.roll(np.eye(3), 1, axis=0)) == 0
    assert cosine_similarity(rows.astype(np.float32), rows) == pytest.approx(100, abs=1e-4)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (np.ones((2, 3)), np.ones((3, 2)), "alike"),
        (np.ones(3), np.ones(3), "alike"),
        (np.ones((0, 3)), np.ones((0, 3)), "at least one row"),
        (np.zeros((1, 3)), np.ones((1, 3)), "all zero"),
        (np.full((1, 3), np.nan), np.ones((1, 3)), "NaN"),
    ],
)
def test_bad_distributions(left, right, message):
    with pytest.raises(ValueError, match=message):
        cosine_similarity(left, right)


@given(text=st.text("ab", min_size=8, max_size=40), n=st.integers(1, 8))
def test_all_of_a_part_occurs_in_the_whole(text, n):
    assert ngram_overlap(text, "x" + text, n) == 1
    assert ngram_overlap(list(text), list("x" + text), n) == 1


def test_overlap_counts_distinct_ngrams():
    assert ngram_overlap("ababac", "ab", 2) == pytest.approx(1 / 3)
    assert ngram_overlap(np.array([1, 2, 3]), np.array([1, 2]), 2) == 0.5
    assert ngram_overlap("abc", "", 2) == 0


@given(
    generated=st.text("ab", min_size=9, max_size=40),
    reference=st.text("ab", max_size=60),
    n=st.sampled_from([1, 2, 7, 8]),
)
def test_overlap_by_brute_force(generated, reference, n):
    distinct = {generated[i : i + n] for i in range(len(generated) - n + 1)}
    expected = sum(ngram in reference for ngram in distinct) / len(distinct)
    assert ngram_overlap(generated, reference, n) == expected
    assert ngram_overlap(list(generated), list(reference), n) == expected


def test_bad_overlap():
    with pytest.raises(ValueError, match="too few"):
        ngram_overlap("abc", "abc", 4)
    with pytest.raises(ValueError, match="at least 1"):
        ngram_overlap("abc", "abc", 0)


def test_bins_hold_their_lower_edge():
    scores = np.log([0.5, 0.25, 0.125, 0.1, 0.2])
    rows = binned(scores, [99, 100, 1000, 10_000, 20_000], n_resamples=10)
    assert [row.n_tokens for row in rows] == [1, 1, 1, 2, 5]
    assert rows[0].perplexity == pytest.approx(2)
    assert rows[3].perplexity == pytest.approx(np.sqrt(50))
    assert rows[4].perplexity == pytest.approx(perplexity(scores))
    assert (rows[1].low, rows[1].high) == (100, 1000)


def test_interval_of_independent_tokens_is_that_of_the_mean():
    rng = np.random.default_rng(0)
    scores = -rng.exponential(size=40_000)
    row = binned(scores, np.full(40_000, 5), random_state=1)[0]
    half = 1.96 * scores.std() / np.sqrt(len(scores))
    assert np.log(row.upper / row.perplexity) == pytest.approx(half, rel=0.15)
    assert np.log(row.perplexity / row.lower) == pytest.approx(half, rel=0.15)


def test_blocks_keep_the_dependence_between_neighbours():
    scores = -np.repeat(np.random.default_rng(0).exponential(size=200), 100)
    wide, narrow = (
        binned(scores, np.zeros(20_000), block_size=size, n_resamples=2000)[0] for size in (100, 1)
    )
    assert np.log(wide.upper / wide.lower) > 5 * np.log(narrow.upper / narrow.lower)


def test_same_seed_same_interval():
    scores, counts = np.log([0.5, 0.1, 0.3]), [5, 500, 7]
    first = binned(scores, counts, random_state=3, block_size=1)
    assert first[0] == binned(scores, counts, random_state=3, block_size=1)[0]
    assert first[0].lower <= first[0].perplexity <= first[0].upper


@pytest.mark.parametrize(
    ("counts", "settings", "message"),
    [
        ([1], {}, "of one length"),
        ([1, 2], {"n_resamples": 0}, "at least 1"),
        ([1, 2], {"block_size": 0}, "at least 1"),
        ([1, np.nan], {}, "NaN"),
    ],
)
def test_bad_bins(counts, settings, message):
    with pytest.raises(ValueError, match=message):
        binned(np.log([0.5, 0.5]), counts, **settings)


def test_bins_refuse_infinite_scores():
    with pytest.raises(ValueError, match="finite"):
        binned([-np.inf], [1])


def test_a_bin_that_no_resample_reaches_has_no_interval():
    """One rare token among 5 000: a single resample of blocks of one most often lacks it."""
    counts = np.full(5000, 500)
    counts[0] = 1
    rows = [
        binned(np.full(5000, -1.0), counts, n_resamples=1, block_size=1, random_state=seed)[0]
        for seed in range(5)
    ]
    assert all(row.perplexity == pytest.approx(np.e) for row in rows)
    assert any(np.isnan(row.lower) and np.isnan(row.upper) for row in rows)


def test_bins_do_not_depend_on_the_parts_that_tokens_come_in():
    rng = np.random.default_rng(3)
    scores, counts = np.log(rng.uniform(0.1, 1, 1234)), rng.integers(0, 20_000, 1234)
    whole = binned(scores, counts, n_resamples=50, random_state=0)
    bins = FrequencyBins()
    for part in np.split(np.arange(1234), [1, 99, 100, 101, 450, 1200]):
        bins.add(scores[part], counts[part])
    assert bins.rows(50, random_state=0) == whole


def test_differences_are_those_of_the_same_blocks():
    rng = np.random.default_rng(4)
    counts = rng.integers(0, 20_000, 3000)
    first, second = np.log(rng.uniform(0.1, 1, (2, 3000)))
    one, two = FrequencyBins(), FrequencyBins()
    one.add(first, counts)
    two.add(second, counts)
    rows = one.differences(two, 400, random_state=0)
    plain = [bins.rows(10, random_state=0) for bins in (one, two)]
    for row, a, b in zip(rows, *plain, strict=True):
        assert (row.name, row.n_tokens) == (a.name, a.n_tokens)
        assert row.perplexity == pytest.approx(a.perplexity - b.perplexity)
        assert row.lower < row.perplexity < row.upper
    # By hand, all tokens: blocks of 100 drawn with replacement, the same for both.
    blocks = np.stack([-first, -second]).reshape(2, 30, 100).mean(axis=2)
    drawn = blocks[:, rng.integers(30, size=(20_000, 30))].mean(axis=2)
    low, high = np.quantile(np.exp(drawn[0]) - np.exp(drawn[1]), [0.025, 0.975])
    assert rows[-1].lower == pytest.approx(low, abs=0.1 * (high - low))
    assert rows[-1].upper == pytest.approx(high, abs=0.1 * (high - low))


def test_tokens_of_a_single_block_or_sentence_have_no_interval():
    scores, counts = np.log(np.linspace(0.1, 1, 300)), np.full(300, 500)
    counts[250:] = 5
    few, many, *_, everything = binned(scores, counts, n_resamples=50)
    assert few.n_tokens == 50
    assert np.isnan([few.lower, few.upper]).all()
    assert many.lower < many.perplexity < many.upper
    assert everything.lower < everything.perplexity < everything.upper
    sentence = np.arange(300) // 50
    judged = judged_tokens([scores], sentence, [by_frequency(counts)], n_resamples=50)
    assert [name for _, name in judged.groups] == ["all", "<100", "100-1k"]
    assert np.isnan(judged.intervals()[0]).all(axis=1).tolist() == [False, True, False]


def test_a_model_differs_from_itself_by_nothing():
    bins = FrequencyBins()
    bins.add(np.log(np.linspace(0.1, 1, 500)), np.arange(500) * 7 % 500)
    for row in bins.differences(bins, 20, random_state=1):
        values = [row.perplexity, row.lower, row.upper]
        assert values == [0, 0, 0] if row.n_tokens else np.isnan(values).all()


def test_differences_need_the_same_tokens():
    one, two = FrequencyBins(), FrequencyBins()
    one.add(np.log([0.5]), np.array([1]))
    two.add(np.log([0.5]), np.array([500]))
    with pytest.raises(ValueError, match="must have scored the same tokens"):
        one.differences(two)
