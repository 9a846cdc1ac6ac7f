"""Kneser-Ney against a reference that counts in dictionaries and follows the book's equations."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from esnlm import (
    NgramLanguageModel,
)
from esnlm.__main__ import main
from esnlm.ngrams.backoff import BackoffNgrams
from esnlm.ngrams.counts import FALLBACK_DISCOUNTS
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.storage.model_folder import WEIGHTS
from esnlm.text.shard_parts import PartedCorpus
from esnlm.text.shards import Shards


class Counted(KneserNey):
    """The model on lists of documents."""

    def fit(self, docs):
        tokens, starts = self._joined(docs)
        return super().fit(tokens, starts=starts)

    def log_likelihood(self, docs):
        tokens, starts = self._joined(docs)
        parts = np.split(self.log_probabilities(tokens, starts), starts[1:])
        return [scores[1:] for scores in parts[: len(docs)]]

    def _joined(self, docs):
        tokens = [np.zeros(0, dtype=int), *(np.asarray(doc, dtype=int) for doc in docs)]
        return np.concatenate(tokens), np.cumsum([0, *map(len, docs)])[:-1]


class Reference:
    """Interpolated Kneser-Ney, one dictionary per order, one loop per sum."""

    def __init__(self, docs, order, n_tokens, kind):
        self.order, self.n_tokens = order, n_tokens
        self.counts = [self._adjusted(docs, k) for k in range(1, order + 1)]
        self.discounts = [discounts_of(counts.values(), kind) for counts in self.counts]

    def _adjusted(self, docs, k):
        """Occurrences for the longest order, distinct left tokens (plus starts) for the others."""
        plain, starts, lefts = Counter(), Counter(), defaultdict(set)
        for doc in docs:
            for end in range(1, len(doc)):
                first = end - k + 1
                if first < 0:
                    continue
                gram = tuple(doc[first : end + 1])
                plain[gram] += 1
                if first == 0:
                    starts[gram] += 1
                else:
                    lefts[gram].add(doc[first - 1])
        if k == self.order:
            return plain
        return Counter({gram: len(lefts[gram]) + starts[gram] for gram in plain})

    def probability(self, word, context):
        context = tuple(context)[max(0, len(context) - self.order + 1) :]
        lower = self.probability(word, context[1:]) if context else 1 / self.n_tokens
        k = len(context)
        following = {g: c for g, c in self.counts[k].items() if g[:-1] == context}
        if not following:
            return lower
        taken = {g: self.discounts[k][min(c, 3) - 1] for g, c in following.items()}
        total = sum(following.values())
        gram = (*context, word)
        own = following[gram] - taken[gram] if gram in following else 0.0
        return (own + sum(taken.values()) * lower) / total


def discounts_of(counts, kind):
    of = Counter(counts)
    fallback = FALLBACK_DISCOUNTS if kind == "modified" else (0.5, 0.5, 0.5)
    if not of[1] or not of[2]:
        return fallback
    y = of[1] / (of[1] + 2 * of[2])
    if kind == "single":
        return (y, y, y)
    if not of[3]:
        return fallback
    found = tuple(c - (c + 1) * y * of[c + 1] / of[c] for c in (1, 2, 3))
    return found if all(0 < d < c for d, c in zip(found, (1, 2, 3), strict=True)) else fallback


KINDS = ["modified", "single"]
documents = st.lists(st.lists(st.integers(0, 4), max_size=12), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(train=documents, test=documents, order=st.integers(1, 5), kind=st.sampled_from(KINDS))
def test_matches_the_reference(train, test, order, kind):
    train = [*train, [0, 1, 2]]
    model = Counted(order=order, n_tokens=6, discounts=kind).fit(train)
    reference = Reference(train, order, 6, kind)
    scores = model.log_likelihood(test)
    assert [len(score) for score in scores] == [max(len(doc) - 1, 0) for doc in test]
    for doc, score in zip(test, scores, strict=True):
        expected = [reference.probability(doc[i], doc[:i]) for i in range(1, len(doc))]
        np.testing.assert_allclose(np.exp(score), expected, rtol=1e-10)


def random_docs(seed, n_docs=200, length=15, n_tokens=12):
    """Documents with some order in them: a token leans to the one after the last."""
    rng = np.random.default_rng(seed)
    docs = []
    for _ in range(n_docs):
        steps = rng.geometric(0.45, size=rng.integers(1, length))
        docs.append(np.cumsum(steps) % n_tokens)
    return docs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_matches_the_reference_where_discounts_are_estimated(order, kind):
    train, test = random_docs(0), random_docs(1, n_docs=5)
    model = Counted(order=order, n_tokens=12, discounts=kind).fit(train)
    reference = Reference([doc.tolist() for doc in train], order, 12, kind)
    np.testing.assert_allclose(model.discounts_, reference.discounts, rtol=1e-12)
    for doc, score in zip(test, model.log_likelihood(test), strict=True):
        words = doc.tolist()
        expected = [reference.probability(words[i], words[:i]) for i in range(1, len(words))]
        np.testing.assert_allclose(np.exp(score), expected, rtol=1e-10)


def test_keys_beyond_32_bits_are_counted():
    n_tokens = 1 << 17
    rng = np.random.default_rng(0)
    words = rng.choice(rng.integers(0, n_tokens, 300), 30_000).tolist()
    model = Counted(order=4, n_tokens=n_tokens).fit([words])
    reference = Reference([words], 4, n_tokens, "modified")
    (score,) = model.log_likelihood([words[:40]])
    expected = [reference.probability(words[i], words[:i]) for i in range(1, 40)]
    np.testing.assert_allclose(np.exp(score), expected, rtol=1e-10)


def test_modified_discounts_are_estimated_on_the_test_corpus():
    model = Counted(order=4, n_tokens=12).fit(random_docs(0))
    assert any(tuple(row) != FALLBACK_DISCOUNTS for row in model.discounts_)


@settings(max_examples=50, deadline=None)
@given(context=st.lists(st.integers(0, 13), max_size=7), order=st.integers(1, 5))
def test_distributions_sum_to_one_in_any_context(context, order):
    model = Counted(order=order, n_tokens=14).fit(random_docs(2))
    after = model.next_token_distribution(context)
    assert after.shape == (14,)
    assert (after > 0).all()
    assert after.sum() == pytest.approx(1, abs=1e-12)


def test_distribution_agrees_with_the_likelihood():
    model = Counted(order=4, n_tokens=12).fit(random_docs(3))
    doc = random_docs(4, n_docs=1, length=40)[0]
    scores = model.log_likelihood([doc])[0]
    for place in range(1, len(doc)):
        after = model.next_token_distribution(doc[:place])
        assert np.log(after[doc[place]]) == pytest.approx(scores[place - 1], rel=1e-12)


@pytest.mark.parametrize("docs", [random_docs(3), [[0, 1], [2, 0]]])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_contexts_that_are_read_together_give_what_each_gives_alone(order, docs):
    starts = np.cumsum([0, *map(len, docs)])[:-1]
    model = KneserNey(order=order, n_tokens=12).fit(np.concatenate(docs), starts=starts)
    contexts = [random_docs(4)[0][:length] for length in (3, 0, 9, 1, 4)]
    for ngrams in (model, BackoffNgrams.of(model)):
        rows = ngrams.next_token_distributions(contexts)
        np.testing.assert_array_equal(rows, [*map(ngrams.next_token_distribution, contexts)])
        for context, row in zip(contexts, rows, strict=True):
            if len(context):
                ends = [[*context, token] for token in range(12)]
                texts, where = np.concatenate(ends), np.arange(12) * len(ends[0])
                logs = ngrams.log_probabilities(texts, where).reshape(12, -1)[:, -1]
                np.testing.assert_allclose(np.log(row), logs, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("at_once", [1, 3, 7, 1 << 20])
def test_a_long_array_with_starts_is_scored_in_pieces(order, at_once, monkeypatch):
    monkeypatch.setattr("esnlm.ngrams.kneser_ney._SCORED_AT_ONCE", at_once)
    train, test = random_docs(10), random_docs(11, n_docs=6)
    starts = np.cumsum([0, *map(len, train)])[:-1]
    model = KneserNey(order=order, n_tokens=12).fit(np.concatenate(train), starts=starts)
    as_docs = Counted(order=order, n_tokens=12).fit(train)
    np.testing.assert_array_equal(model.discounts_, as_docs.discounts_)
    long = np.concatenate(test).astype(np.uint16)
    where = np.cumsum([0, *map(len, test)])[:-1]
    scores = np.split(model.log_probabilities(long, where), where[1:])
    for expected, score in zip(as_docs.log_likelihood(test), scores, strict=True):
        assert score[0] == 0
        np.testing.assert_array_equal(score[1:], expected)
    whole = model.log_probabilities(long)
    np.testing.assert_array_equal(whole[1:], as_docs.log_likelihood([long])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_hold_the_whole_model(kind):
    train, test = random_docs(12), random_docs(13, n_docs=5)
    model = Counted(order=4, n_tokens=70_000, discounts=kind).fit([*train, [69_999] * 70_000])
    arrays = model.state_dict()
    assert {arrays[f"tokens.{order}"].dtype.name for order in range(2, 5)} == {"uint32"}
    assert all(array.dtype.kind in "uf" for array in arrays.values())
    again = Counted(**model.get_params() | {"n_tokens": 70_000}).load_state_dict(arrays)
    assert again.n_parameters_ == model.n_parameters_
    for one, two in zip(model.log_likelihood(test), again.log_likelihood(test), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(
        model.next_token_distribution(test[0][:3]), again.next_token_distribution(test[0][:3])
    )


@pytest.mark.parametrize(("last", "bits"), [(3, 16), (2**16 - 1, 16), (2**16, 32)])
def test_tokens_are_kept_in_16_bits_where_they_fit(last, bits):
    arrays = KneserNey(order=1).fit([0, last, last]).state_dict()
    assert arrays["tokens.1"].dtype == np.dtype(f"uint{bits}")
    assert arrays["tokens.1"].tolist() == [last]


@pytest.mark.parametrize("starts", [[], [1, 2], [0, 3, 2], np.array([0, 3, 2], dtype=np.uint16)])
def test_starts_that_do_not_rise_from_zero_are_refused(starts):
    with pytest.raises(ValueError, match="starts must begin at 0 and rise"):
        KneserNey(order=2).fit(np.array([0, 1, 2, 3]), starts=starts)


@pytest.mark.parametrize("starts", [[0.0, 1.5], [[0, 2]], 0, ["0"]])
def test_starts_that_are_no_list_of_integers_are_refused(starts):
    with pytest.raises(ValueError, match="starts must be a 1-D array of integers"):
        KneserNey(order=2).fit(np.array([0, 1, 2, 3]), starts=starts)


def test_starts_may_be_of_any_integer_type():
    tokens = np.random.default_rng(0).integers(0, 5, 300)
    model = KneserNey(order=4).fit(tokens, starts=[0, 255])
    expected = model.log_probabilities(tokens, [0, 255])
    narrow = np.array([0, 255], dtype=np.uint8)
    np.testing.assert_array_equal(model.log_probabilities(tokens, narrow), expected)
    np.testing.assert_array_equal(
        KneserNey(order=4).fit(tokens, starts=narrow).log_probabilities(tokens, narrow), expected
    )


@pytest.mark.parametrize("dtype", ["int8", "uint16", ">i4", "uint64"])
def test_tokens_may_be_of_any_integer_type(dtype: str):
    tokens = np.random.default_rng(0).integers(0, 5, 300)
    expected = KneserNey(order=4).fit(tokens).log_probabilities(tokens)
    same = tokens.astype(dtype)
    np.testing.assert_array_equal(KneserNey(order=4).fit(same).log_probabilities(same), expected)


def changed_table(**changes):
    """A model of bigrams loaded from arrays of which some were changed."""
    arrays = {
        "discounts": np.array([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]),
        "tokens.1": np.array([0, 2, 3]),
        "counts.1": np.array([1, 1, 1]),
        "children.1": np.array([3]),
        "tokens.2": np.array([0, 2, 3]),
        "counts.2": np.array([1, 1, 1]),
        "children.2": np.array([0, 3, 0, 0]),
    }
    given = {name.replace("_", "."): np.array(value) for name, value in changes.items()}
    return KneserNey(order=2, n_tokens=4).load_state_dict(arrays | given)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("tokens_2", [0, 2, 4], r"must lie in \[0, 4\), got 0 to 4"),
        ("tokens_2", [-1, 2, 3], r"must lie in \[0, 4\), got -1 to 3"),
        ("tokens_1", [0, 2, 4], r"must lie in \[0, 4\), got 0 to 4"),
        ("counts_2", [1, 0, 1], r"must lie in \[1, 2\^31\), got 0 to 1"),
        ("counts_2", [1, 2**31, 1], r"must lie in \[1, 2\^31\), got 1 to 2147483648"),
        ("children_2", [0, 3, 0, 1], "must add up to the 3 n-grams"),
        ("children_2", [0, 2, 0, 0], "must add up to the 3 n-grams"),
        ("children_2", [0, 4, -1, 0], "must add up to the 3 n-grams"),
        ("children_2", [0, 3, 0], "must have shape"),
        ("discounts", [[0.5] * 3, [0.0, 0.5, 0.5]], "discounts must lie between 0"),
        ("discounts", [[1.0, 0.5, 0.5], [0.5] * 3], "discounts must lie between 0"),
        ("discounts", [[0.5, 0.5, 3.0], [0.5] * 3], "discounts must lie between 0"),
    ],
)
def test_tables_that_no_text_has_are_refused(name, value, message):
    with pytest.raises(ValueError, match=message):
        changed_table(**{name: value})


def test_tables_at_their_limits_are_taken():
    last = np.nextafter([1.0, 2.0, 3.0], 0)
    model = changed_table(counts_2=[1, 2**31 - 1, 1], discounts=[last, np.full(3, 1e-9)])
    assert model.next_token_distribution([1]).sum() == pytest.approx(1)
    assert changed_table().next_token_distribution([1])[2] == pytest.approx(
        (1 - 0.5) / 3 + 0.5 * ((1 - 0.5) / 3 + 0.5 / 4)
    )


@pytest.mark.parametrize("tokens", [[0, 3, 2], [2, 0, 3], [0, 2, 2], [0, 0, 2]])
def test_n_grams_that_do_not_rise_within_a_context_are_refused(tokens):
    # Nothing follows token 0: its context ends where the table begins.
    with pytest.raises(ValueError, match=r"tokens\.2 must rise within each context"):
        changed_table(tokens_2=tokens)


def test_n_grams_may_fall_from_one_context_to_the_next():
    # Token 2 follows 1; 1 and 3 follow 3.
    model = changed_table(tokens_2=[2, 1, 3], children_2=[0, 1, 0, 2])
    of_1, of_2, of_3 = (model.next_token_distribution([context]) for context in (1, 2, 3))
    assert of_1[2] > of_2[2] > of_3[2]
    assert min(of_3[1] - of_2[1], of_3[3] - of_2[3]) > 0
    model = changed_table(tokens_2=[3, 2, 1], children_2=[1, 1, 0, 1])
    assert [model.next_token_distribution([context]).argmax() for context in (0, 1, 3)] == [3, 2, 1]


def test_contexts_do_not_cross_documents():
    model = Counted(order=5, n_tokens=12).fit(random_docs(6))
    one, two = random_docs(7, n_docs=2)
    together = model.log_likelihood([one, two])
    np.testing.assert_array_equal(together[1], model.log_likelihood([two])[0])


def test_longer_orders_help_on_structured_text():
    train, test = random_docs(8, 2000), random_docs(9)
    one, two = (
        np.concatenate(Counted(order=order, n_tokens=12).fit(train).log_likelihood(test)).mean()
        for order in (1, 2)
    )
    assert two > one + 0.1


def test_clone_and_default_vocabulary():
    model = clone(Counted(order=2, discounts="single")).fit([[0, 3, 1]])
    assert model.n_tokens_ == 4
    assert model.n_parameters_ == 4


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "no token to predict"),
        ([1], "no token to predict"),
        ([0.5, 1.0], "must be integers"),
        ([-1, 2], "must be at least 0 and below 5"),
        ([1, 5], "must be at least 0 and below 5"),
        (np.zeros((2, 2), dtype=int), "must be a 1-D array of integers"),
    ],
)
def test_bad_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        KneserNey(order=2, n_tokens=5).fit(tokens)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"order": 0}, "order must be an integer of at least 1, got 0"),
        ({"order": 2.5}, "order must be an integer of at least 1, got 2.5"),
        ({"order": 1001}, "order must be at most 1000, got 1001"),
        ({"discounts": "none"}, "discounts must"),
        ({"n_tokens": 0}, "n_tokens must"),
    ],
)
def test_bad_settings(settings_, message):
    with pytest.raises(ValueError, match=message):
        Counted(**settings_).fit([[0, 1]])


def test_use_before_fit():
    with pytest.raises(ValueError, match="call fit first"):
        KneserNey().log_probabilities([0, 1])
    with pytest.raises(ValueError, match="call fit first"):
        KneserNey().next_token_distribution([])


@pytest.mark.parametrize(
    ("context", "message"),
    [([0.7], "must be integers"), ([5], "below 5"), ([-1], "at least 0"), ([[0]], "1-D array")],
)
def test_contexts_that_are_no_tokens_are_refused(context, message):
    model = KneserNey(order=2, n_tokens=5).fit([0, 1, 2])
    with pytest.raises(ValueError, match=message):
        model.next_token_distribution(context)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_ngrams_of_parts_are_those_of_the_text(shards: Path, order: int) -> None:
    whole = NgramLanguageModel(order=order, tokenizer=Shards(shards).tokenizer).fit(
        Shards(shards).stream()
    )
    parted = NgramLanguageModel(order=order).fit_parts(PartedCorpus(shards), n_parts=7)
    (_, expected), (_, found) = whole._contents(), parted._contents()
    assert found[WEIGHTS].keys() == expected[WEIGHTS].keys()
    for name, array in expected[WEIGHTS].items():
        assert np.array_equal(found[WEIGHTS][name], array)


def test_the_command_counts_ngrams_on_a_cluster(shards: Path, cluster: Any, tmp_path: Path) -> None:
    for name, more in (("a", []), ("b", ["--cluster", cluster.scheduler_address])):
        out = str(tmp_path / name)
        assert main(["ngram", str(shards), "--out", out, "--order", "3", *more]) == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
