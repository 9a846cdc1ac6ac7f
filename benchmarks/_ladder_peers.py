"""Outside peers on the ladder: KenLM and faster-rnnlm, on the same tokens, written as words.

Each sentence of the shards is a line of token numbers, without BOS and EOS, which both programs
add themselves: so they predict the same tokens as the other models, the ends of sentences among
them. Where their programs are not in the folders that are named, they are built there from their
own sources, which takes git, a compiler, cmake and Boost for KenLM, and the network.
"""

import math
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _ladder_runs import Runs, Trained
from _measured import OverBudgetError, measured

from esnlm.evaluation.minimal_pairs.pairs import read_pairs
from esnlm.evaluation.minimal_pairs.scores import PairScores
from esnlm.evaluation.minimal_pairs.table import tabulate
from esnlm.storage.atomic import write_whole
from esnlm.text.shards import Shards
from esnlm.utils.messages import log

_LOG_10 = math.log(10)
#: Of 100 sentences one says when faster-rnnlm lowers its rate and stops; it is not trained on.
_VALIDATION = 100
#: In a shell, where $0 is the text: what a program says beside scores would cut lines of them.
_APART = '2> "$0.messages"'


#: Peer -> its program in its folder, and the commands that make that, of which {} is the folder.
SOURCES = {
    "kenlm": (
        "bin/lmplz",
        (
            "git clone https://github.com/kpu/kenlm {}/source",
            "cmake -S {}/source -B {}",
            "make -C {}",
        ),
    ),
    "faster-rnnlm": (
        "faster-rnnlm/rnnlm",
        ("git clone https://github.com/yandex/faster-rnnlm {}", "bash {}/build.sh"),
    ),
}


def build(name: str, folder: Path) -> None:
    """Build a peer from its source where its program is not in the folder.

    ValueError with the command that failed and the end of what it printed; what it left stays.
    """
    program, commands = SOURCES[name]
    if (folder / program).exists():
        return
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"{folder} holds no {program}: name the folder where {name} was built, or one that is"
            " empty, to build it there"
        )
    for command in (line.replace("{}", shlex.quote(str(folder))) for line in commands):
        log.info(command)
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        if done.returncode:
            end = (done.stdout + done.stderr).strip()[-500:]
            raise ValueError(f"{name} was not built: {command} ended with {done.returncode}: {end}")
    if not (folder / program).exists():
        raise ValueError(f"{name} was built, but {folder} holds no {program}")


class Scores(NamedTuple):
    """Natural-log probabilities of sentences (n,), NaN where a peer leaves one out."""

    with_end: Any
    without_end: Any  #: the same where a peer tells only the whole


class Places(NamedTuple):
    """What a peer is given: runs, and folders of its programs by its name."""

    runs: Runs
    programs: Path


def kenlm(places: Places, budget: float) -> Trained | None:
    """Modified Kneser-Ney 5-grams by lmplz."""
    runs, model = places.runs, places.runs.folder / "kenlm"
    model.mkdir(exist_ok=True)
    text = _sentences(runs.train, model)
    command = [str(places.programs / "bin" / "lmplz"), "--order", "5", "--discount_fallback",
               "--memory", "2G", "--temp_prefix", str(model) + "/", "--text", str(text),
               "--arpa", str(model / "model.arpa")]  # fmt: skip
    try:
        used = measured(command, model / "lmplz.txt", budget)
    except OverBudgetError:
        return None
    head = (model / "model.arpa").open().read(400)
    counted = sum(int(line.split("=")[1]) for line in head.splitlines() if line[:6] == "ngram ")
    shown = "lmplz --order 5 --discount_fallback"
    return Trained(model, shown, used, runs.n_predicted, counted)


def faster_rnnlm(places: Places, budget: float) -> Trained | None:
    """256 sigmoid units, hierarchical softmax, 4-grams hashed to 100 million places.

    Its passes go on until the validation loss falls no more; the budget may end it before, and
    the net saved after the last whole pass is the result.
    """
    runs, model = places.runs, places.runs.folder / f"faster-rnnlm-{budget:.0f}-s"
    shutil.rmtree(model, ignore_errors=True)
    model.mkdir()
    lines = _sentences(runs.train, model).read_text().splitlines(keepends=True)
    (model / "valid.txt").write_text("".join(lines[::_VALIDATION]))
    kept = [line for place, line in enumerate(lines) if place % _VALIDATION]
    (model / "train.txt").write_text("".join(kept))
    options = ["-hidden", "256", "-direct", "100", "-direct-order", "4", "-threads", "1",
               "-show-progress", "0", "-seed", str(runs.seed)]  # fmt: skip
    files = {"rnnlm": "model", "train": "train.txt", "valid": "valid.txt"}
    named = [part for name, file in files.items() for part in (f"-{name}", str(model / file))]
    program = str(places.programs / "faster-rnnlm" / "rnnlm")
    output = model / "rnnlm.txt"
    try:
        used = measured([program, *named, *options], output, budget)
    except OverBudgetError as ended:
        used = ended.used
    passes = len(re.findall(r"Epoch \d+ entropy", used.output))
    if not passes:
        return None
    tokens = sum(len(line.split()) + 1 for line in kept)
    n_words = len((model / "model").read_text().splitlines())
    n_parameters = n_words * 256 * 2 + 256 * 256 + 100_000_000
    return Trained(model, "rnnlm " + " ".join(options), used, tokens * passes, n_parameters)


def kenlm_scores(places: Places, model: Path, text: Path) -> Scores:
    """Scores of the lines of a text by KenLM's query; unknown tokens are its ``<unk>``."""
    query = [str(places.programs / "bin" / "query"), "-v", "word", "-v", "sentence"]
    command = ["sh", "-c", f'"$@" < "$0" {_APART}', str(text), *query, str(model / "model.arpa")]
    return query_scores(measured(command, model / "query.txt").output)


def query_scores(output: str) -> Scores:
    """Scores of sentences as ``query -v word -v sentence`` prints them, log10 of each token.

    >>> found = query_scores("5=7 2 -1.5\\t</s>=2 1 -0.5\\tTotal: -2 OOV: 0\\n")
    >>> (found.with_end / _LOG_10).round(9), (found.without_end / _LOG_10).round(9)
    (array([-2.]), array([-1.5]))
    """
    logs = [
        [float(word.rsplit(" ", 1)[1]) for word in line.split("\t") if "=" in word]
        for line in output.splitlines()
    ]
    whole = np.array([math.fsum(each) for each in logs])
    return Scores(whole * _LOG_10, (whole - np.array([each[-1] for each in logs])) * _LOG_10)


def faster_rnnlm_scores(places: Places, model: Path, text: Path) -> Scores:
    """Scores of the lines of a text; sentences with a token that was not in training are left out.

    It tells the probability of a whole sentence, its end included.
    """
    program = str(places.programs / "faster-rnnlm" / "rnnlm")
    scoring = [program, "-rnnlm", str(model / "model"), "-test"]
    command = ["sh", "-c", f'"$@" "$0" {_APART}', str(text), *scoring]
    output = measured(command, model / "test.txt").output.splitlines()
    found = [math.nan if line == "OOV" else float(line) for line in output if _is_score(line)]
    return Scores(np.array(found) * _LOG_10, np.array(found) * _LOG_10)


def peer_scores(
    score: Callable[[Path], Scores], held_out: Path, blimp: Path | None, at: Path
) -> dict[str, Any]:
    """Columns of a row: losses of held-out shards, and accuracies on minimal pairs."""
    shards = Shards(held_out)
    scores = _checked(score(_sentences(held_out, at)).with_end)
    lengths = shards.stream().lengths - 1
    if len(scores) != len(lengths):
        raise ValueError(f"a peer must score {len(lengths)} sentences, got {len(scores)}")
    known = np.isfinite(scores)
    nll, n_tokens = -float(scores[known].sum()), int(lengths[known].sum())
    words = shards.manifest["totals"]["words"]
    found = {
        "nll_per_token": nll / n_tokens,
        "nll_per_word": nll / words if known.all() else None,
        "n_held_out_tokens": n_tokens,
    }
    return found | ({} if blimp is None else _accuracies(score, shards, blimp, at))


def _accuracies(
    score: Callable[[Path], Scores], shards: Shards, blimp: Path, at: Path
) -> dict[str, Any]:
    """Accuracies on minimal pairs; a pair with a sentence that the peer did not score is a tie."""
    pairs = read_pairs(blimp)
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    text = at / "pairs.txt"
    encoded = shards.tokenizer.encode_batches(sentences)
    write_whole(text, "".join(" ".join(map(str, ids.tolist())) + "\n" for ids in encoded))
    found = _checked(score(text).without_end)
    good, bad = found[::2].copy(), found[1::2].copy()
    left_out = ~np.isfinite(good + bad)
    good[left_out] = bad[left_out] = 0.0
    *_, overall = tabulate(pairs, PairScores(good, bad, True, "sum"), "peer")
    names = {"accuracy": "", "lower": "_lower", "upper": "_upper", "strict": "_strict"}
    return {f"blimp{end}": overall[name] for name, end in names.items()} | {
        "blimp_correct": overall["correct"]
    }


def _checked(scores: Any) -> Any:
    """Log-probabilities, if none is above zero; NaN passes."""
    if (scores > 0).any():
        raise ValueError(
            f"log-probabilities of sentences must be at most 0, got {np.nanmax(scores):g}:"
            " were the scores misread?"
        )
    return scores


def _sentences(shards: Path, folder: Path) -> Path:
    """A file of the sentences of shards, token numbers without BOS and EOS, a line each."""
    path = folder / f"{shards.name}.tokens"
    if not path.exists():
        write_whole(path, "".join(_lines(Shards(shards))))
    return path


def _lines(shards: Shards) -> Iterable[str]:
    stream = shards.stream()
    assert stream.starts is not None
    tokens, ends = np.asarray(stream.tokens), np.append(stream.starts[1:], len(stream.tokens))
    for first, end in zip(stream.starts.tolist(), ends.tolist(), strict=True):
        yield " ".join(map(str, tokens[first + 1 : end - 1].tolist())) + "\n"


def _is_score(line: str) -> bool:
    try:
        float(line)
    except ValueError:
        return line == "OOV"
    return True
