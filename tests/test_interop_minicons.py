"""minicons on exported folders, beside our own scores."""

from pathlib import Path

import numpy as np
import pytest
from interop_cases import CASES, fitted, minimal_pairs, sentence_scores

from esnlm import LanguageModel
from esnlm.interop.huggingface import export_model

pytest.importorskip("torch", reason="needs the hf extra")
scorer = pytest.importorskip("minicons.scorer", reason="needs the hf extra")
pytestmark = [
    pytest.mark.hf,
    pytest.mark.usefixtures("offline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

#: Sentence scores of other clients may differ from ours by this much, in nats.
TOLERANCE = 1e-4
PAIRS = [pair for pairs in minimal_pairs().values() for pair in pairs]


def total(scores) -> float:
    return scores.sum(0).item()


def outside(model: LanguageModel, tmp_path: Path):
    folder = str(tmp_path / "exported")
    export_model(model, folder)
    # Named as the tokenizer too, the folder is loaded with the same options as the model.
    return scorer.IncrementalLMScorer(folder, "cpu", tokenizer=folder, trust_remote_code=True)


@pytest.mark.parametrize("case", CASES)
def test_sentence_scores_and_decisions_equal_ours(case: str, tmp_path: Path) -> None:
    ours = fitted(case)
    client = outside(ours, tmp_path)
    texts = [text for pair in PAIRS for text in pair]
    found = client.sequence_score(texts, reduction=total)
    expected = sentence_scores(ours, texts)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    for i, (good, bad) in enumerate(PAIRS):
        if good != bad:
            decided = found[2 * i] > found[2 * i + 1]
            assert decided == (expected[2 * i] > expected[2 * i + 1])


@pytest.mark.parametrize("case", ["softmax", "byte pairs"])
def test_tokens_and_continuations(case: str, tmp_path: Path) -> None:
    ours = fitted(case)
    client = outside(ours, tmp_path)
    text = "the boys who see the cat hear a dog ."
    tokens = client.token_score(text)[0]
    expected = ours.log_likelihood([text])[0][:-1]
    np.testing.assert_allclose([score for _, score in tokens[1:]], expected, atol=TOLERANCE)
    found = client.conditional_score("the boys", "see the cat .", reduction=total)
    alone, joined = sentence_scores(ours, ["the boys", "the boys see the cat ."])
    assert abs(found[0] - (joined - alone)) < TOLERANCE
