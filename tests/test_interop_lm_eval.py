"""lm-evaluation-harness on exported folders, and on our models without torch."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from interop_cases import CASES, fitted, minimal_pairs, sentence_scores, sentences, write_blimp

import esnlm
from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout
from esnlm.interop.huggingface import export_model

lm_eval = pytest.importorskip("lm_eval", reason="needs the hf extra")
pytest.importorskip("torch", reason="needs the hf extra")
pytestmark = [
    pytest.mark.hf,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from esnlm.interop.lm_eval import ReservoirLM, blimp_tasks  # noqa: E402

#: Sentence scores of other clients may differ from ours by this much, in nats.
TOLERANCE = 1e-4
PAIRS = {name: [*pairs] for name, pairs in minimal_pairs().items()}
TEXTS = [text for pairs in PAIRS.values() for pair in pairs for text in pair]


@pytest.fixture(autouse=True)
def datasets(offline: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")


def requests(kind: str, arguments: list[tuple]) -> list[Instance]:
    return [
        Instance(request_type=kind, doc={}, arguments=args, idx=i)
        for i, args in enumerate(arguments)
    ]


def outside(model: LanguageModel, tmp_path: Path) -> HFLM:
    """The harness's own class on the exported folder."""
    export_model(model, tmp_path / "exported")
    return HFLM(str(tmp_path / "exported"), trust_remote_code=True, batch_size=4, device="cpu")


@pytest.mark.parametrize("case", CASES)
def test_sentence_scores_equal_ours(case: str, tmp_path: Path) -> None:
    ours = fitted(case)
    expected = sentence_scores(ours, TEXTS)
    asked = requests("loglikelihood", [("", text) for text in TEXTS])
    inside = ReservoirLM(ours).loglikelihood(asked, disable_tqdm=True)
    np.testing.assert_allclose([score for score, _ in inside], expected, rtol=0, atol=TOLERANCE)
    found = outside(ours, tmp_path).loglikelihood(asked, disable_tqdm=True)
    np.testing.assert_allclose([score for score, _ in found], expected, rtol=0, atol=TOLERANCE)
    assert [greedy for _, greedy in inside] == [greedy for _, greedy in found]


@pytest.mark.parametrize("case", ["softmax", "byte pairs"])
def test_decisions_on_a_blimp_folder_equal_ours(case: str, tmp_path: Path) -> None:
    folder = write_blimp(tmp_path / "blimp")
    ours = fitted(case)
    none = TaskManager(include_defaults=False)  # reading all of them takes longest
    for model in (ReservoirLM(ours), outside(ours, tmp_path)):
        results = lm_eval.simple_evaluate(
            model=model, tasks=blimp_tasks(folder), task_manager=none, bootstrap_iters=0,
            log_samples=True,
        )  # fmt: skip
        for name, pairs in PAIRS.items():
            samples = sorted(results["samples"][f"blimp_{name}"], key=lambda row: row["doc_id"])
            found = [[score for score, _ in row["filtered_resps"]] for row in samples]
            expected = [sentence_scores(ours, list(pair)) for pair in pairs]
            np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
            for (good, bad), row, (ours_good, ours_bad) in zip(
                pairs, samples, expected, strict=True
            ):
                # A tie counts as right there. Of equal texts, rounding decides outside.
                if good != bad:
                    assert row["acc"] == (ours_good > ours_bad)
                elif isinstance(model, ReservoirLM):
                    assert row["acc"] == 1


@pytest.mark.parametrize("case", ["softmax", "mixture", "byte pairs", "characters"])
def test_continuations_of_a_context(case: str, tmp_path: Path) -> None:
    ours = fitted(case)
    likeliest = ours.sample(3, prompt="the boys", temperature=0).split("\n")[0]
    pairs = [("the boys", " see the cat ."), ("a girl ", "sees a dog ."), ("the boys", likeliest)]
    asked = requests("loglikelihood", pairs)
    inside = ReservoirLM(ours).loglikelihood(asked, disable_tqdm=True)
    found = outside(ours, tmp_path).loglikelihood(asked, disable_tqdm=True)
    np.testing.assert_allclose(
        [score for score, _ in inside], [score for score, _ in found], rtol=0, atol=TOLERANCE
    )
    assert [greedy for _, greedy in inside] == [greedy for _, greedy in found]
    assert inside[2][1]
    alone, joined = sentence_scores(ours, ["the boys", "the boys see the cat ."])
    assert abs(inside[0][0] - (joined - alone)) < TOLERANCE


def test_rolling_scores_are_those_of_whole_texts(tmp_path: Path) -> None:
    ours = fitted("softmax")
    asked = requests("loglikelihood_rolling", [(text,) for text in TEXTS])
    inside = ReservoirLM(ours).loglikelihood_rolling(asked, disable_tqdm=True)
    np.testing.assert_allclose(inside, sentence_scores(ours, TEXTS), rtol=0, atol=TOLERANCE)
    # The harness's class puts its prefix before a BOS that the tokenizer has put, and counts it.
    found = outside(ours, tmp_path).loglikelihood_rolling(asked, disable_tqdm=True)
    bos = ours.tokenizer_.bos_id
    again = ours.log_likelihood([np.array([bos, bos])])[0][0]
    np.testing.assert_allclose(np.array(found) - again, inside, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", ["softmax", "byte pairs"])
def test_greedy_texts_are_the_same(case: str, tmp_path: Path) -> None:
    ours = fitted(case)
    options = {"until": [" ."], "max_gen_toks": 12, "do_sample": False}
    contexts = ["the boys", "a girl", "the cat sees"]
    asked = requests("generate_until", [(context, dict(options)) for context in contexts])
    inside = ReservoirLM(ours).generate_until(asked, disable_tqdm=True)
    assert inside == outside(ours, tmp_path).generate_until(asked, disable_tqdm=True)
    assert all(inside)
    assert not any(" ." in text for text in inside)


def test_a_state_that_is_never_reset_begins_after_a_line_end(tmp_path: Path) -> None:
    for tokenizer in ("word", "char"):
        ours = LanguageModel(
            Reservoir(40, random_state=0), RidgeReadout(), tokenizer=tokenizer, reset="never"
        ).fit(["\n".join(sentences(150))])
        asked = requests("loglikelihood", [("", "the boys see the cat ."), ("a", " girl")])
        model = ReservoirLM(ours)
        inside = model.loglikelihood(asked, disable_tqdm=True)
        before = ours.tokenizer_.eos_id
        if tokenizer == "char":
            before = ours.tokenizer_.encode("\n")[0]
        text = np.append(before, ours.tokenizer_.encode("the boys see the cat ."))
        assert inside[0][0] == pytest.approx(ours.log_likelihood([text])[0].sum(), abs=1e-5)
        if tokenizer == "word":
            found = outside(ours, tmp_path).loglikelihood(asked, disable_tqdm=True)
            np.testing.assert_allclose(
                [score for score, _ in inside], [score for score, _ in found], atol=TOLERANCE
            )


def run(arguments: list[str], folder: Path) -> str:
    """Standard output of Python on our package, offline, in a folder."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            "HF_HOME": str(folder / "home"),
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(Path(esnlm.__file__).parents[1]),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scoring_needs_no_torch(tmp_path: Path) -> None:
    ours = fitted("softmax")
    ours.save(tmp_path / "model")
    script = """
import sys
from lm_eval.api.instance import Instance
from esnlm.interop.lm_eval import ReservoirLM
asked = Instance("loglikelihood", {}, ("", "the boys see the cat ."), 0)
print(ReservoirLM.create_from_arg_string("pretrained=model").loglikelihood([asked])[0][0])
assert not {"torch", "transformers"} & set(sys.modules)
"""
    score = float(run(["-c", script], tmp_path))
    assert abs(score - sentence_scores(ours, ["the boys see the cat ."])[0]) < TOLERANCE


@pytest.mark.slow
def test_the_command_line_of_the_harness_knows_our_models(tmp_path: Path) -> None:
    fitted("softmax").save(tmp_path / "model")
    (tmp_path / "tasks").mkdir()
    task = blimp_tasks(write_blimp(tmp_path / "blimp"))[0]
    (tmp_path / "tasks" / "number.yaml").write_text(json.dumps(task))
    arguments = ["-m", "esnlm.interop.lm_eval", "run", "--model", "esnlm"]
    arguments += ["--model_args", "pretrained=model", "--include_path", "tasks"]
    assert "|acc" in run([*arguments, "--tasks", "blimp_number"], tmp_path)


def test_what_cannot_be_scored_is_said(tmp_path: Path) -> None:
    docs = [np.array([0, 1, 2, 1])] * 5
    integers = LanguageModel(Reservoir(10, random_state=0), RidgeReadout()).fit(docs)
    with pytest.raises(ValueError, match="tokenizer"):
        ReservoirLM(integers)
    with pytest.raises(ValueError, match="no such model"):
        ReservoirLM(tmp_path / "missing")
    NgramLanguageModel(2, tokenizer="word").fit(["the dog sees"] * 3).save(tmp_path / "ngrams")
    with pytest.raises(ValueError, match=r"holds a model of kind ngrams, .*: judge it by"):
        ReservoirLM(tmp_path / "ngrams")
    with pytest.raises(FileNotFoundError, match="jsonl"):
        blimp_tasks(tmp_path)
