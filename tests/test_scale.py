"""Training on shards in parts: the same bytes wherever parts are worked on, and what is refused."""

import os
import pickle
import platform
import random
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge

from esnlm import (
    ClassFactoredReadout,
    LanguageModel,
    LowRankReadout,
    MixtureOfExpertsReadout,
    NgramLanguageModel,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    SpectralWordFeatures,
    TokenGatedReadout,
    WordFeatures,
)
from esnlm.__main__ import main
from esnlm.readouts.base.moments import Moments
from esnlm.storage.checkpoints import Checkpoints
from esnlm.text.prepare import prepare
from esnlm.text.shard_parts import PartedCorpus
from esnlm.text.shards import Shards, ShardsError
from esnlm.training import parts_trainer as parts_training
from esnlm.training.parts_trainer import PartsTrainer
from esnlm.training.resumable_run import StoppedError
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.utils.sums import in_pairs, reduce_here, runs

PLAN = TrainingPlan(chunk_tokens=400, random_state=3)
READOUTS: dict[str, Any] = {
    "ridge": RidgeReadout(),
    "penalised ridge": RidgeReadout(alpha=1.0),
    "sampled ridge": RidgeReadout(gram_rows=900),
    "factored ridge": ClassFactoredReadout(
        n_classes=4, class_readout="ridge", word_readout="ridge", n_components=10, random_state=0
    ),
    "softmax": SoftmaxReadout(n_passes=2),
    "low rank": LowRankReadout(n_components=8, n_direct=2, n_pairs=20, random_state=0),
    "factored": ClassFactoredReadout(n_classes=3, solver="joint", random_state=0),
    "experts": ClassFactoredReadout(
        n_classes=3, class_readout="moe", solver="joint", random_state=0
    ),
}
READOUTS |= {
    kind: MixtureOfExpertsReadout(n_experts=2, experts=kind.split()[0], max_iter=6, random_state=0)
    for kind in ("softmax experts", "linear experts")
}
STEPS = ["softmax", "low rank", "factored", "experts"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 1 500 sentences in which a word says much about the next."""
    folder, rng = tmp_path_factory.mktemp("scale"), np.random.default_rng(0)
    lines = []
    for length in rng.integers(2, 10, 1500):
        words = np.cumsum(rng.integers(1, 4, length)) % 20
        lines.append(" ".join(f"w{word}" for word in words))
    (folder / "text").write_text("\n".join(lines))
    prepare(folder / "text", folder / "shards", "word")
    return folder / "shards"


def model_of(
    corpus: PartedCorpus,
    readout: str = "ridge",
    features: Any = "spectral",
    dtype: Any = np.float32,
) -> Any:
    if features == "spectral":
        features = SpectralWordFeatures(n_features=6, random_state=0)
    reservoir = Reservoir(30, leak_rate=0.5, dtype=dtype, random_state=1)
    model = LanguageModel(
        reservoir, READOUTS[readout], tokenizer=corpus.tokenizer, features=features
    )
    model._use_tokenizer(corpus.tokenizer)
    return model


def trained(place: Path | str, readout: str = "ridge", n_parts: int = 5, **options: Any) -> Any:
    """The model's arrays as bytes, by name."""
    corpus = PartedCorpus(place)
    model = model_of(corpus, readout, options.pop("features", "spectral"))
    PartsTrainer(model, corpus, None, PLAN, n_parts=n_parts, **options).run()
    return {name: array.tobytes() for name, array in model._contents()[1][_WEIGHTS].items()}


_WEIGHTS = "weights.safetensors"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("distributed")
    from esnlm.runs.cluster import local_cluster

    with local_cluster(1, {"OMP_NUM_THREADS": "1", "ESNLM_NUM_THREADS": "1"}) as made:
        yield made


def test_a_worker_that_is_gone_already_may_be_removed(cluster: Any) -> None:
    before = dict(cluster.scheduler_info["workers"])
    cluster._update_worker_status("remove", "tcp://127.0.0.1:1")
    assert cluster.scheduler_info["workers"] == before


@pytest.mark.parametrize("n", [1, 2, 7, 64, 5000])
def test_parts_hold_every_sentence_once(shards: Path, n: int) -> None:
    corpus, whole = PartedCorpus(shards), Shards(shards).stream()
    parts = corpus.parts(n)
    streams = [part.stream() for part in parts]
    assert len(parts) == min(n, corpus.n_sentences) or n == 64
    assert np.array_equal(np.concatenate([each.tokens for each in streams]), whole.tokens)
    starts = [each.starts + part.begin for each, part in zip(streams, parts, strict=True)]
    assert np.array_equal(np.concatenate(starts), whole.starts)
    assert sum(part.n_rows for part in parts) == corpus.n_rows == whole.n_predicted


@pytest.mark.parametrize("features", ["one-hot", "spectral"])
def test_ridge_of_parts_is_that_of_all_states(shards: Path, features: str) -> None:
    corpus, stream = PartedCorpus(shards), Shards(shards).stream()
    words = SpectralWordFeatures(n_features=6, random_state=0) if features == "spectral" else None
    model = model_of(corpus, "penalised ridge", words)
    PartsTrainer(model, corpus, None, PLAN, n_parts=7).run()
    if words is not None:
        words.fit(stream.tokens, n_tokens=model.n_tokens_, starts=stream.starts)
        assert np.array_equal(model.features_.embedding_, words.embedding_)
    states, following = [], []
    for sentence in np.split(stream.tokens, stream.starts[1:]):
        inputs = sentence if words is None else words.transform(sentence)
        states.append(model.reservoir_.transform(inputs)[:-1])
        following.append(sentence[1:])
    X, y = np.concatenate(states).astype(np.float64), np.concatenate(following)
    truth = Ridge(alpha=1.0).fit(X, np.eye(model.n_tokens_)[y])
    found = X @ model.readout_.coef_.T + model.readout_.intercept_
    # Products of float32 states are summed: a millionth of the diagonal beside a penalty of 1.
    assert np.abs(found - truth.predict(X)).max() < 1e-3
    assert np.array_equal(model.token_counts_, np.bincount(y, minlength=model.n_tokens_))


def test_as_large_a_share_of_each_part_enters_a_sampled_gram_matrix(shards: Path) -> None:
    corpus = PartedCorpus(shards)
    model = model_of(corpus, "sampled ridge")
    PartsTrainer(model, corpus, None, PLAN, n_parts=9).run()
    moments = model.readout_._moments
    assert moments.n == corpus.n_rows
    assert 900 <= moments.n_gram < 900 + 9


def test_empty_moments_travel_light_and_halves_add_up() -> None:
    assert len(pickle.dumps(Moments(500, 10_000))) < 1000
    rng = np.random.default_rng(0)
    X, codes = rng.standard_normal((50, 4)), rng.integers(0, 6, 50)
    halves = [Moments(4, 9, 20).add(X[i::2], codes[i::2]) for i in (0, 1)]
    copies = pickle.loads(pickle.dumps(halves))
    both = Moments(4, 9, 20).replace(copies[0].to_sums() + copies[1].to_sums())
    assert np.allclose(both.sums, Moments(4, 9).add(X, codes).sums)
    assert both.n_gram == sum(half.n_gram for half in halves)
    means = sum(half._gram_sum if half._gram_sum is not None else half.sums.sum(0)
                for half in halves)  # fmt: skip
    assert np.allclose(both._gram_sum if both.n_gram < both.n else both.sums.sum(0), means)


@pytest.mark.parametrize("readout", ["factored ridge", *STEPS])
def test_a_run_that_was_stopped_ends_in_the_same_model(
    shards: Path, tmp_path: Path, readout: str
) -> None:
    store, corpus = Checkpoints(tmp_path / "checkpoints"), PartedCorpus(shards)

    def run(**options: Any) -> dict[str, bytes]:
        model = model_of(corpus, readout)
        PartsTrainer(model, corpus, None, PLAN, n_parts=5).run(**options)
        return {name: array.tobytes() for name, array in model._contents()[1][_WEIGHTS].items()}

    with pytest.raises(StoppedError):
        run(checkpoints=store, stop=lambda: True)
    for _ in range(2):
        with suppress(StoppedError):
            run(checkpoints=store, resume=True, stop=lambda: True)
    assert run(checkpoints=store, resume=True) == trained(shards, readout)


@pytest.mark.parametrize("readout", STEPS)
def test_rounds_of_one_part_learn_as_one_process_does(shards: Path, readout: str) -> None:
    corpus, stream = PartedCorpus(shards), Shards(shards).stream()
    alone, *parted = (model_of(corpus, readout) for _ in range(3))
    Trainer(alone, stream, held_out=None, plan=PLAN).run()
    for model, n in zip(parted, (1, 2), strict=True):
        PartsTrainer(model, corpus, None, PLAN, n_parts=n).run()
    of_one, *others = (model.score(stream) for model in (alone, *parted))
    assert others[0] > of_one - 0.01
    assert others[1] > of_one - 0.1


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_sums_of_parts_maximise_as_rows_at_hand_do(shards: Path, kind: str) -> None:
    corpus, stream = PartedCorpus(shards), Shards(shards).stream()
    # In float32 the rounding of one iteration grows in those after it, past 1e-3 on some machines.
    model = model_of(corpus, f"{kind} experts", dtype=np.float64)
    PartsTrainer(model, corpus, stream, PLAN, n_parts=5).run()
    states = model._states_of(stream)
    blocks = [(X.copy(), y.copy()) for X, y in states]
    alone = clone(READOUTS[f"{kind} experts"])
    alone.fit_blocks(blocks, np.arange(model.n_tokens_), held_out=blocks)
    found, expected = model.readout_.monitor_, alone.monitor_
    assert len(found.penalised) == len(expected.penalised) > 3
    assert np.allclose(found.penalised, expected.penalised, rtol=1e-4)
    assert np.allclose(found.held_out, expected.held_out, rtol=1e-4)


@pytest.mark.parametrize(
    "readout",
    [
        "factored ridge",
        "low rank",
        pytest.param("softmax experts", marks=pytest.mark.slow),
    ],
)
def test_the_bytes_do_not_depend_on_workers(shards: Path, cluster: Any, readout: str) -> None:
    from esnlm.runs.workers import workers

    expected = trained(shards, readout)
    assert trained(shards, readout, 6) != expected
    for n in (1, 2, 3):
        cluster.scale(n)
        cluster.wait_for_workers(n)
        with workers(cluster.scheduler_address) as reduce:
            assert trained(shards, readout, reduce=reduce) == expected


@dataclass(frozen=True)
class Bracketed:
    """What was added to what; `began` takes down when."""

    text: str

    def __add__(self, other: "Bracketed") -> "Bracketed":
        began.append("+")
        return Bracketed(f"({self.text}{other.text})")


began: list[str] = []


def bracketed(given: None, item: int) -> Bracketed:
    began.append(str(item))
    return Bracketed(f"{item},")


def began_here() -> list[str]:
    found = began.copy()
    began.clear()
    return found


@pytest.mark.parametrize("n", [5, 37])
def test_parts_are_added_as_soon_as_their_neighbours_are_there(cluster: Any, n: int) -> None:
    from esnlm.runs.workers import workers

    cluster.scale(1)
    cluster.wait_for_workers(1)
    with workers(cluster.scheduler_address) as reduce:
        done: list[int] = []
        found = reduce("order", bracketed, None, range(n), done.append)
        (order,) = reduce.client.run(began_here).values()
    began.clear()
    assert found == reduce_here("order", bracketed, None, range(n))
    assert sorted(done) == list(range(n))
    assert [each for each in order if each != "+"] == [str(i) for i in range(n)]
    waiting = np.cumsum([-1 if each == "+" else 1 for each in order])
    assert waiting[-1] == 1
    assert waiting.max() <= np.ceil(np.log2(n)) + 2, "a task may begin before a sum is asked for"


@given(st.integers(1, 300), st.integers(1, 50))
def test_runs_are_added_as_their_items_are(n: int, most: int) -> None:
    def add(a: str, b: str) -> str:
        return f"({a}{b})"

    found = runs(n, most)
    assert len(found) <= most
    assert [i for run in found for i in run] == list(range(n))

    def over(number: int) -> str:
        run = found[number]
        return in_pairs(len(run), lambda i: f"{run[i]},", add)

    assert in_pairs(len(found), over, add) == in_pairs(n, lambda i: f"{i},", add)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc")
def test_workers_keep_the_memory_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    from esnlm.runs.workers import workers

    # Dask leaves its own there when a cluster starts, which go before what is configured.
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    with workers("local:1") as reduce:
        for _ in range(2):  # the first time it is new
            (faults,) = reduce.client.run(faults_of_arrays).values()
    assert faults < 10_000, "512 pages of 4 KiB are written a hundred times over"


def faults_of_arrays() -> int:
    """Pages of memory that are new to this process where it makes arrays of 2 MiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(1 << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_sums_come_by_the_scheduler_where_no_worker_answers(
    shards: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.runs.workers import workers

    with workers(cluster.scheduler_address) as reduce:
        assert reduce._is_near
    with workers(cluster.scheduler_address) as reduce:
        connect = reduce.client.rpc.connect

        async def scheduler_alone(address: str, *given: Any, **options: Any) -> Any:
            if address != cluster.scheduler_address:
                raise OSError("no route to host")
            return await connect(address, *given, **options)

        monkeypatch.setattr(reduce.client.rpc, "connect", scheduler_alone)
        assert not reduce._is_near
        assert trained(shards, reduce=reduce) == trained(shards)


def keeping(given: dict[str, Any], item: int) -> int:
    """Keep in what is given something that cannot be sent."""
    given.setdefault("lock", threading.Lock())
    time.sleep(0.05)
    return item


def test_what_is_given_travels_as_it_was(cluster: Any) -> None:
    from esnlm.runs.workers import workers

    cluster.scale(3)
    cluster.wait_for_workers(3)
    with workers(cluster.scheduler_address) as reduce:
        assert list(reduce.map("keep", keeping, {}, range(30))) == list(range(30))
        assert reduce("add", keeping, {}, range(30)) == sum(range(30))


def slowly(given: Any, parts: Any) -> Any:
    """`_learned`, in time enough to be killed."""
    time.sleep(0.1)
    return parts_training._learned(given, parts)


@pytest.mark.parametrize("n_runs", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_workers_change_nothing(
    shards: Path, cluster: Any, n_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.runs.workers import workers

    dice = random.Random(n_runs)
    for number in range(n_runs):
        readout = ["factored ridge", "low rank"][number % 2]
        expected = trained(shards, readout, 16)
        cluster.scale(3)
        cluster.wait_for_workers(3)
        killed: list[int] = []

        def kill(delay: float, killed: list[int] = killed) -> None:
            time.sleep(delay)
            nanny = dice.choice(list(cluster.workers.values()))
            if nanny.process is not None and nanny.process.pid:
                killed.append(nanny.process.pid)
                os.kill(nanny.process.pid, signal.SIGKILL)

        with workers(cluster.scheduler_address) as reduce, monkeypatch.context() as patched:
            patched.setattr(parts_training, "_learned", slowly)
            killer = threading.Thread(target=kill, args=(dice.uniform(0.05, 1.5),))
            killer.start()
            found = trained(shards, readout, 16, reduce=reduce)
            killer.join()
        assert killed
        assert found == expected


def test_states_stay_on_the_workers(
    shards: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.runs.workers import workers

    def refuse(self: Any) -> None:
        raise AssertionError("states on the client")

    monkeypatch.setattr(parts_training.StateBlocks, "__iter__", refuse)
    with pytest.raises(AssertionError, match="states on the client"):
        trained(shards)
    with workers(cluster.scheduler_address) as reduce:
        assert trained(shards, reduce=reduce)


def test_shards_that_a_worker_lacks_or_has_otherwise_are_named(
    shards: Path, cluster: Any, tmp_path: Path
) -> None:
    from esnlm.runs.workers import workers

    place = tmp_path / "shards"
    place.symlink_to(shards)
    corpus = PartedCorpus(place)
    model = model_of(corpus)
    (tmp_path / "text").write_text("w1 w2 w3\nw4 w5\n")
    other = prepare(tmp_path / "text", tmp_path / "other", corpus.tokenizer)
    with workers(cluster.scheduler_address) as reduce:
        run = PartsTrainer(model, corpus, None, PLAN, n_parts=5, reduce=reduce)
        place.unlink()
        with pytest.raises(
            ValueError, match=r"no such shards folder: .* \(counts part \d, on the worker tcp://"
        ):
            run.run()
        place.symlink_to(other.folder)
        with pytest.raises(ValueError, match="holds other shards here than where the run began"):
            run.run()


def limit_files(n_bytes: int) -> None:
    """Let this process write no file of more bytes, as on a disk that is full; -1: any."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if n_bytes < 0 else n_bytes, hard))


def writing(given: str, item: int) -> int:
    Path(given).write_text("a line")
    return item


def test_workers_need_no_room_on_their_disks(shards: Path, cluster: Any, tmp_path: Path) -> None:
    from esnlm.runs.workers import workers

    expected = trained(shards)
    cluster.scale(2)
    cluster.wait_for_workers(2)
    with workers(cluster.scheduler_address) as reduce:
        trained(shards, reduce=reduce)  # compiled functions are on the disk
        reduce.client.run(limit_files, 0)
        assert trained(shards, reduce=reduce) == expected
        with pytest.raises(ValueError, match=r"too large.* \(notes part 1, on the worker tcp://"):
            reduce("notes", writing, str(tmp_path / "notes"), [1])
        reduce.client.run(limit_files, -1)


def test_workers_of_another_version_are_refused(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.runs import cluster as module
    from esnlm.runs.workers import workers

    monkeypatch.setattr(module, "__version__", "9.9")
    with (
        pytest.raises(ValueError, match=r"has esnlm .*, expected 9\.9"),
        workers(cluster.scheduler_address),
    ):
        pass


def test_a_worker_that_came_later_is_of_the_same_version() -> None:
    from esnlm.runs.workers import _worked

    with pytest.raises(
        ValueError, match=r"a worker has esnlm .*, expected 9\.9 \(moments part 3\)"
    ):
        _worked("9.9", "moments part 3", (max, 1), 2)


def test_a_lost_scheduler_is_an_error_of_one_line(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    from esnlm.runs.workers import workers

    monkeypatch.setattr("esnlm.runs.cluster._PATIENCE", 3)
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as made,
        workers(made.scheduler_address) as reduce,
    ):
        made.close()
        with pytest.raises(ConnectionError, match="the connection to the cluster is lost"):
            trained(shards, reduce=reduce)


@pytest.fixture
def server(shards: Path) -> Iterator[str]:
    """A web server of the shards, which knows no ranges."""
    handler = partial(_Quiet, directory=str(shards.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}/shards"
        made.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


def test_shards_at_a_url_are_those_of_the_folder(
    shards: Path, server: str, cluster: Any, tmp_path: Path
) -> None:
    pytest.importorskip("aiohttp")
    from esnlm.runs.workers import workers

    expected = trained(shards, n_parts=3)
    assert trained(server, n_parts=3) == expected
    with workers(cluster.scheduler_address) as reduce:
        assert trained(server, n_parts=3, reduce=reduce) == expected
    with pytest.raises(ShardsError, match=r"is not a whole set of shards: manifest\.json is miss"):
        PartedCorpus(server + "/nowhere")
    with pytest.raises(ShardsError, match=r"cannot read nowhere://x/manifest\.json"):
        PartedCorpus("nowhere://x")
    for name, place in (("a", str(shards)), ("b", server)):
        words = f"train {place} --out {tmp_path / name} --units 20 --readout ridge --parts 3"
        assert main(words.split()) == 0
    assert main(f"ngram {server} --out {tmp_path / 'c'}".split()) == 0
    assert main(f"ngram {server} --unwrap --out {tmp_path / 'd'}".split()) == 2
    weights = [(tmp_path / name / _WEIGHTS).read_bytes() for name in "ab"]
    assert weights[0] == weights[1]


def test_a_server_with_ranges_is_asked_for_them(shards: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    for path in shards.iterdir():
        files.pipe_file(f"/scale/{path.name}", path.read_bytes())
    assert trained("memory://scale", n_parts=3) == trained(shards, n_parts=3)


def test_what_takes_one_step_after_the_other_is_refused(shards: Path) -> None:
    with pytest.raises(ValueError, match=r"^WordFeatures are learned from one token after"):
        trained(shards, features=WordFeatures(n_features=2, random_state=0))
    corpus = PartedCorpus(shards)
    for readout in (
        ClassFactoredReadout(n_classes=3, word_readout="ridge", solver="joint"),
        ClassFactoredReadout(n_classes=3, solver="separate"),
        TokenGatedReadout(),
    ):
        model = LanguageModel(Reservoir(20), readout, tokenizer=corpus.tokenizer)
        model._use_tokenizer(corpus.tokenizer)
        with pytest.raises(ValueError, match=r"Readout is not trained in parts with these param"):
            PartsTrainer(model, corpus, None, PLAN, n_parts=5)


def test_the_command_makes_the_same_model(
    shards: Path, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(out: str, *more: str) -> int:
        words = f"train {shards} --out {tmp_path / out} --units 20 --readout ridge".split()
        return main([*words, *more])

    held = ["--held-out", str(shards), "--parts", "4"]
    assert train("a", *held) == 0
    assert "held-out perplexity" in capsys.readouterr().out
    assert train("b", *held, "--cluster", cluster.scheduler_address) == 0
    for name in ("config.json", _WEIGHTS, "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert train("c", "--parts", "0") == 2
    assert train("c", "--parts", "2", "--model", "esn") == 2
    words = ["train", str(shards.parent / "text"), "--out", str(tmp_path / "c"), "--parts", "2"]
    assert main(words) == 2
    assert "--parts need shards" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_items_are_added_in_the_order_of_their_numbers() -> None:
    done: list[str] = []
    found = reduce_here("letters", lambda given, item: given + item, "-", "abc", done.append)
    assert (found, done) == ("-a-b-c", ["a", "b", "c"])


@pytest.mark.parametrize("order", [1, 2, 4])
def test_ngrams_of_parts_are_those_of_the_text(shards: Path, order: int) -> None:
    whole = NgramLanguageModel(order=order, tokenizer=Shards(shards).tokenizer).fit(
        Shards(shards).stream()
    )
    parted = NgramLanguageModel(order=order).fit_parts(PartedCorpus(shards), n_parts=7)
    (_, expected), (_, found) = whole._contents(), parted._contents()
    assert found[_WEIGHTS].keys() == expected[_WEIGHTS].keys()
    for name, array in expected[_WEIGHTS].items():
        assert np.array_equal(found[_WEIGHTS][name], array)


def test_the_command_counts_ngrams_on_a_cluster(shards: Path, cluster: Any, tmp_path: Path) -> None:
    for name, more in (("a", []), ("b", ["--cluster", cluster.scheduler_address])):
        out = str(tmp_path / name)
        assert main(["ngram", str(shards), "--out", out, "--order", "3", *more]) == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
