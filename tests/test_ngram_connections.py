"""N-grams beside a reservoir: Kneser-Ney's own figures, a part left out, gradients, resuming."""

import numpy as np
import pytest
from scipy.special import logsumexp

from esnlm import LanguageModel, NgramLanguageModel, Reservoir, TokenGatedReadout
from esnlm.__main__ import main
from esnlm.loading import load_model
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.readouts.base.last_tokens import last_tokens
from esnlm.readouts.token_gated.ngram_connections import NgramConnections
from esnlm.readouts.token_gated.ngram_tables import WindowCounts
from esnlm.training.trainer import Trainer, TrainingPlan

V = 6


def texts(n: int = 60, seed: int = 0) -> list[np.ndarray]:
    """Short documents with many repetitions, some of which begin alike."""
    rng = np.random.default_rng(seed)
    shares = [0.4, 0.2, 0.2, 0.1, 0.05, 0.05]
    return [rng.choice(V, p=shares, size=rng.integers(2, 30)) for _ in range(n)]


def rows_of(docs: list[np.ndarray], n_last: int) -> tuple[np.ndarray, ...]:
    """Stream, starts, and the last tokens (n, n_last) and next token (n,) of every prediction."""
    tokens = np.concatenate(docs)
    starts = np.cumsum([0, *(len(doc) for doc in docs[:-1])])
    at = np.setdiff1d(np.arange(len(tokens)), starts)
    return tokens, starts, last_tokens(tokens, at - 1, starts, n_last), tokens[at]


def connections(last: np.ndarray, following: np.ndarray) -> NgramConnections:
    made = NgramConnections(last.shape[1], V, V)
    made.count(last, following)
    made.settle()
    return made


def log_probabilities(made: NgramConnections, last: np.ndarray, codes=None) -> np.ndarray:
    Z = np.zeros((len(last), V))
    made.add_to(Z, last, codes)
    return Z - logsumexp(Z, axis=1, keepdims=True)


@pytest.mark.parametrize("n_last", [1, 2, 4, 8])
def test_lifts_as_they_are_make_kneser_ney(n_last):
    docs = texts()
    tokens, starts, last, following = rows_of(docs, n_last)
    peer = KneserNey(order=n_last + 1, n_tokens=V).fit(tokens, starts=starts)
    made = connections(last, following)
    np.testing.assert_allclose(made._tables.discounts, peer.discounts_)
    logs = log_probabilities(made, last)
    theirs = peer.log_probabilities(tokens, starts)
    at = np.setdiff1d(np.arange(len(tokens)), starts)
    ours = logs[np.arange(len(following)), following]
    np.testing.assert_allclose(ours, theirs[at], atol=1e-5)
    _, _, last, following = rows_of(texts(20, seed=1), n_last)
    logs = log_probabilities(made, last)
    for row in range(0, len(last), 7):
        before = last[row][last[row] >= 0][::-1]
        wanted = np.log(peer.next_token_distribution(before))
        np.testing.assert_allclose(logs[row], wanted, atol=1e-5)


def test_a_part_that_is_left_out_was_never_counted():
    _, _, last, following = rows_of(texts(), 3)
    made = connections(last, following)
    parts = np.arange(len(last)) * 8 // len(last)
    for part in range(8):
        rest = parts != part
        fewer = NgramConnections(3, V, V)
        fewer.counted.add(last[rest], following[rest], parts[rest])
        fewer.settle()
        fewer._tables = fewer._tables._replace(discounts=made._tables.discounts)
        rows = last[part :: 8 * 11]
        drawn = np.full(len(rows), part)
        made.counted.parts_of = lambda *_, drawn=drawn: drawn
        found = log_probabilities(made, rows, np.zeros(len(rows), dtype=int))
        np.testing.assert_allclose(found, log_probabilities(fewer, rows), atol=1e-5)


def test_rows_are_left_out_with_the_part_that_they_were_counted_in():
    _, _, last, following = rows_of(texts(), 3)
    made = connections(last, following)
    parts = np.arange(len(last)) * 8 // len(last)
    _, at, times = np.unique(
        np.column_stack([last, following]), axis=0, return_inverse=True, return_counts=True
    )
    alone = np.flatnonzero(times[at] == 1)
    assert len(alone) > 50
    left_out = []

    def kept(*args):
        left_out.append(WindowCounts.parts_of(made.counted, *args))
        return left_out[-1]

    made.counted.parts_of = kept
    made.add_to(np.zeros((len(last), V)), last, following)
    np.testing.assert_array_equal(left_out[0][alone], parts[alone])


def test_a_part_is_drawn_as_often_as_a_row_was_met_in_it():
    rng = np.random.default_rng(0)
    last, codes = rng.integers(-1, 2, (3000, 2)), rng.integers(0, 2, 3000)
    parts = rng.choice(8, 3000, p=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1, 0, 0])
    counted = WindowCounts(2, 2, 2)
    counted.add(last, codes, parts)
    for row in range(0, 3000, 100):
        same = (last == last[row]).all(axis=1) & (codes == codes[row])
        times = np.bincount(parts[same], minlength=8)
        n = same.sum()
        draws = (np.arange(n) + 0.5) / n
        found = counted.parts_of(*(np.repeat(a[row : row + 1], n, 0) for a in (last, codes)), draws)
        np.testing.assert_array_equal(np.bincount(found, minlength=8), times)
    few = WindowCounts(2, 2, 2)
    few.add(last[:1], codes[:1], parts[:1])
    assert few.parts_of(last[:1], codes[:1], np.array([0.99])) == parts[0]
    assert few.parts_of(last[:1], 1 - codes[:1], np.array([0.0])) == -1


def test_rows_that_wait_are_read_without_leaving_out():
    _, _, last, following = rows_of(texts(), 3)
    made = connections(last[:-3], following[:-3])
    before = log_probabilities(made, last[-3:])
    made.count(last[-3:], following[-3:])
    found = log_probabilities(made, last[-3:], following[-3:])
    np.testing.assert_array_equal(found, before)
    made.settle()
    all_at_once = connections(last, following)
    np.testing.assert_array_equal(
        log_probabilities(made, last), log_probabilities(all_at_once, last)
    )


def test_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(0)
    _, _, last, following = rows_of(texts(), 2)
    made = connections(last, following)
    made.trust += rng.uniform(-0.5, 0.5, made.trust.shape)
    made.bias += rng.uniform(-0.5, 0.5, made.bias.shape)
    rows = np.arange(len(following))

    def loss() -> float:
        return -float(log_probabilities(made, last, following)[rows, following].sum())

    Z = np.zeros((len(last), V))
    tiles = made.add_to(Z, last, following)
    residuals = np.exp(Z - logsumexp(Z, axis=1, keepdims=True)) - np.eye(V)[following]
    made.learn(tiles, residuals, 0.0)
    made.waiting = 0  # so that the same parts are left out
    for values, gradient in zip((made.trust, made.bias), made.gradient, strict=True):
        assert np.count_nonzero(gradient) > 20
        for at in np.argwhere(gradient)[::5]:
            place, known = tuple(at), values[tuple(at)]
            values[place] = known + 1e-3
            above = loss()
            values[place] = known - 1e-3
            slope = (above - loss()) / 2e-3
            values[place] = known
            np.testing.assert_allclose(gradient[place], slope, rtol=2e-3, atol=2e-3)


def test_steps_come_after_as_many_rows_however_they_are_cut():
    _, _, last, following = rows_of(texts(2000), 2)
    last, following = last[:20000], following[:20000]
    parts = []
    for cuts in ([], [5, 8191, 8200, 12345]):
        made = connections(last, following)
        for part in np.split(np.arange(len(last)), cuts):
            while len(part):
                rows, part = part[: made.room], part[made.room :]
                Z = np.zeros((len(rows), V))
                tiles = made.add_to(Z, last[rows], following[rows])
                made.learn(tiles, np.exp(Z) - np.eye(V)[following[rows]], 1.0)
        assert made.waiting == len(last) - 2 * 8192
        parts.append(made)
    assert not np.allclose(parts[0].trust, 1)
    for name in ("trust", "bias", "gradient"):
        ours, theirs = (getattr(part, name) for part in parts)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def chain(n: int = 30000) -> np.ndarray:
    """A text in which the next token depends on the last three."""
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.full(V, 0.3), size=(V, V, V))
    made = [0, 1, 2]
    for _ in range(n):
        made.append(int(rng.choice(V, p=table[made[-3], made[-2], made[-1]])))
    return np.array(made)


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return chain()


def language_model(n_direct: int = 4, **options) -> LanguageModel:
    readout = TokenGatedReadout(n_direct=n_direct, **{"alpha": 30.0} | options)
    reservoir = Reservoir(20, degree=4, topology="offsets", random_state=0)
    return LanguageModel(reservoir, readout, n_tokens=V, reset="never", random_state=0)


def test_every_distribution_sums_to_one(tokens):
    model = language_model().fit([tokens[:8000]])
    rng = np.random.default_rng(0)
    states = np.concatenate(
        [rng.uniform(-1, 1, (5000, 20)), rng.integers(-1, V, (5000, 4))], axis=1
    )
    sums = model.readout_.predict_proba(states).sum(axis=1)
    np.testing.assert_allclose(sums, 1, atol=1e-12)
    assert model.readout_.predict_proba(states.astype("f4")).dtype == np.float32
    sums = [model.predict_proba(tokens[:n]).sum() for n in range(10)]
    np.testing.assert_allclose(sums, 1, atol=1e-6)


def test_it_is_better_than_its_n_grams_and_its_reservoir(tokens):
    train, test = tokens[:25000], tokens[25000:]
    ours = language_model(2).fit([train]).score([test])  # what matters is one token further back
    ngrams = NgramLanguageModel(order=3, n_tokens=V, reset="never").fit([train])
    alone = language_model(2, alpha=1e9).fit([train])
    assert alone.score([test]) > ngrams.score([test]) - 0.002
    assert ours > ngrams.score([test]) + 0.1
    assert ours > language_model(1).fit([train]).score([test]) + 0.01


@pytest.mark.parametrize("reset", ["sentence", "document", "never"])
def test_text_is_scored_as_it_is_read_on(tokens, reset):
    docs = np.split(tokens[:3000], [700, 702, 1900])
    model = language_model().set_params(reset=reset).fit(docs)
    scores = model.log_likelihood(docs)
    for doc, found in zip(docs[-1:] if reset != "never" else docs[:1], scores[-1:], strict=True):
        found = found if reset != "never" else scores[0]
        for at in (1, 2, 5, 40):
            wanted = np.log(model.predict_proba(doc[:at])[doc[at]])
            np.testing.assert_allclose(found[at - 1], wanted, atol=1e-4)


def test_saved_and_loaded_it_says_the_same_and_learns_on_alike(tokens, tmp_path):
    model = language_model().partial_fit(tokens[:6000])
    model.save(tmp_path / "model", training=True)
    loaded = load_model(tmp_path / "model")
    test = [tokens[20000:22000]]
    np.testing.assert_array_equal(loaded.log_likelihood(test)[0], model.log_likelihood(test)[0])
    assert loaded.n_parameters_ == model.n_parameters_ > 6 * 6 * 20
    assert loaded.sample(30, prompt=tokens[:9], random_state=0).tolist() == (
        model.sample(30, prompt=tokens[:9], random_state=0).tolist()
    )
    for each in (model, loaded):
        each.partial_fit(tokens[6000:20000])
    np.testing.assert_array_equal(loaded.log_likelihood(test)[0], model.log_likelihood(test)[0])


def test_a_part_is_text_that_stands_together(tokens):
    model = language_model(6, n_passes=1)
    n = len(tokens) - 1
    Trainer(model, model._read_corpus([tokens]), plan=TrainingPlan(chunk_tokens=1024)).run()
    at = np.arange(n)
    last, codes = last_tokens(tokens, at, None, 6), tokens[1:]
    _, place, times = np.unique(
        np.column_stack([last, codes]), axis=0, return_inverse=True, return_counts=True
    )
    once = np.flatnonzero(times[place] == 1)
    counted = model.readout_.ngrams_.counted
    parts = counted.parts_of(last[once], codes[once], np.zeros(len(once)))
    away = np.abs((at[once] + 0.5) / n * 8 - parts - 0.5)
    assert away.max() < 0.5 + 8 * 2048 / n  # a chunk or two, in which rows are not in order
    assert set(parts) == set(range(8))


def test_the_pilot_sample_is_spread_over_all_rows():
    n, rng = 200_000, np.random.default_rng(0)
    X = np.column_stack([np.arange(n) / n, rng.integers(0, V, n)])
    codes = rng.integers(0, V, n)
    readout = TokenGatedReadout(n_direct=1)._begin(np.arange(V), 2, n_rows=n)
    for rows in np.array_split(np.arange(n), 7):
        readout._sample(X[rows], codes[rows])
    pilot = readout._pilot
    assert pilot.counts.sum() == n // 4  # at most 65 536
    np.testing.assert_array_equal(pilot.counts, np.bincount(X[::4, 1].astype(int)))
    np.testing.assert_allclose(pilot.means()[:, 0], 0.5, atol=0.02)


def test_counts_do_not_depend_on_how_rows_come():
    rng = np.random.default_rng(0)
    last, codes = rng.integers(-1, V, (5000, 3)), rng.integers(0, V, 5000)
    whole, parts = WindowCounts(3, V, V), WindowCounts(3, V, V)
    places = rng.integers(0, 8, 5000)
    whole.add(last, codes, places)
    for rows in np.array_split(rng.permutation(5000), 13):
        parts.add(last[rows], codes[rows], places[rows])
        assert parts.times.sum() == parts.n_rows
    np.testing.assert_array_equal(whole.windows, parts.windows)
    np.testing.assert_array_equal(whole.times, parts.times)
    _, times = np.unique(np.column_stack([last, codes, places]), axis=0, return_counts=True)
    np.testing.assert_array_equal(whole.times, times)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"windows": np.array([[0, 3], [0, 2]])}, "windows must rise within"),
        ({"windows": np.array([[0, 0], [0, 10**6]])}, r"windows must rise within \[0, 16464\)"),
        ({"windows": np.array([[0, 0], [1, 0]])}, r"windows must rise within \[0, 16464\)"),
        ({"windows": np.array([[2**31, 0], [0, 0]])}, "windows must rise within"),
        ({"windows": np.array([3, 9])}, "windows must have"),
        ({"times": np.array([1, 0])}, r"times must lie in \[1, 2\^31\), got 0 to 1"),
        ({"times": np.array([1])}, "times must have shape"),
        ({"windows": np.array([[0, 0.5], [0, 1]])}, "windows must be integers"),
    ],
)
def test_damaged_counts_are_refused(change, message):
    arrays = {"windows": np.array([[0, 3], [0, 9]]), "times": np.array([1, 2])}
    with pytest.raises(ValueError, match=message):
        WindowCounts(3, V, V).load_state_dict(arrays | change)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_direct": -1}, "n_direct must be an integer of at least 0, got -1"),
        ({"n_direct": 30}, "n_direct must be at most 20 with 6 tokens and 6 classes"),
        ({"n_direct": 4, "n_gates": 0}, "n_gates must be None or an integer of at least 1, got 0"),
    ],
)
def test_bad_parameters_are_refused(tokens, options, message):
    with pytest.raises(ValueError, match=message):
        language_model(**options).fit([tokens[:500]])


def test_columns_that_are_no_tokens_are_refused(tokens):
    readout = language_model().fit([tokens[:2000]]).readout_
    with pytest.raises(ValueError, match=r"whole numbers from -1 \(none\) to 5"):
        readout.predict_proba(np.full((2, 24), 0.5))


def test_windows_of_many_symbols_are_saved(tmp_path):
    tokens = np.random.default_rng(0).integers(90, size=3000)
    readout = TokenGatedReadout(n_direct=8)
    model = LanguageModel(Reservoir(10, random_state=0), readout, n_tokens=90, reset="never")
    model.fit([tokens[:2000]]).save(tmp_path / "model")
    windows = model.readout_.ngrams_.counted.windows
    assert windows.max() > 1 << 53
    loaded = LanguageModel.load(tmp_path / "model")
    assert np.array_equal(loaded.readout_.ngrams_.counted.windows, windows)
    assert loaded.score([tokens[2000:]]) == model.score([tokens[2000:]])


def test_a_folder_without_counts_is_refused(tokens):
    readout = language_model().fit([tokens[:2000]]).readout_
    arrays = readout.state_dict()
    for name in ("ngrams.trust", "ngrams.counted.windows"):
        with pytest.raises(KeyError, match=name.removeprefix("ngrams.")):
            TokenGatedReadout(n_direct=4).load_state_dict(
                {key: array for key, array in arrays.items() if key != name}
            )


def test_the_command_line_trains_scores_and_writes(tmp_path, capsys):
    text = "the quality of mercy is not strained.\nit droppeth as the gentle rain.\n" * 40
    (tmp_path / "text.txt").write_text(text)
    folder = str(tmp_path / "model")
    args = ["train", str(tmp_path / "text.txt"), "--tokenizer", "char", "--readout", "gated"]
    assert main([*args, "--units", "30", "--reset", "never", "--out", folder]) == 0
    model = load_model(folder)
    assert model.readout_.n_direct == 8
    assert main(["evaluate", folder, str(tmp_path / "text.txt")]) == 0
    assert main(["generate", folder, "--prompt", "the qual", "--tokens", "20"]) == 0
    assert "ity of mercy" in capsys.readouterr().out
    assert main(["export", folder, str(tmp_path / "hf")]) == 2
    assert "cannot export a TokenGatedReadout" in capsys.readouterr().err
