"""What a model reads before a sentence, against the probabilities after that prefix."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import DOCS, mixed, ngrams, reservoir_model

from esnlm.__main__ import main
from esnlm.evaluation.measures import Evaluation
from esnlm.models.context import in_context
from esnlm.text.prepare import prepare

TEXTS = ["the boy sees .\ndogs see the boy .\nMary sees .", "boys see\nthe dog ."]


def expected_scores(model: Any, n_before: int | None) -> list[float]:
    """Natural logs of every token after BOS, each sentence after so many of its document."""
    tokenizer, scores = model.tokenizer_, []
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    one_bos = model.reset_ == "document"
    for text in TEXTS:
        sentences = [[*tokenizer.encode(line).tolist(), eos] for line in text.splitlines()]
        for i, sentence in enumerate(sentences):
            first = 0 if n_before is None else max(0, i - n_before)
            ids = [bos]
            for before in sentences[first:i]:
                ids += [*before, *([] if one_bos else [bos])]
            for token in sentence:
                scores.append(float(np.log(model.predict_proba(ids)[token])))
                ids.append(token)
    return scores


@pytest.mark.parametrize("reset", ["sentence", "document"])
@pytest.mark.parametrize("make", [reservoir_model, ngrams])
@pytest.mark.parametrize(
    ("context", "n_before"), [("sentence", 0), ("document", None), (1, 1), (np.int64(2), 2), (9, 9)]
)
def test_a_sentence_is_read_after_its_context(
    make: Any, reset: str, context: Any, n_before: int | None
) -> None:
    model = make(reset)
    evaluation = Evaluation([model], ["m"], "line", context=context, tables={"t": TEXTS})
    scores = [part.scores[0][part.predicted] for part in evaluation.parts("t")]
    expected = expected_scores(model, n_before)
    np.testing.assert_allclose(np.concatenate(scores), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", [reservoir_model, ngrams, mixed])
def test_the_context_of_training_changes_nothing(make: Any) -> None:
    model = make()
    table = model.surprisal(TEXTS)
    assert table.equals(model.surprisal(TEXTS, context="sentence"))
    read_on = model.surprisal(TEXTS, context="document")
    assert table["word"].equals(read_on["word"])
    if make is not ngrams:  # the n-grams of training begin at the beginning of a sentence
        assert not np.allclose(table["surprisal_bits"], read_on["surprisal_bits"], rtol=1e-9)


def test_shards_are_read_in_context_as_their_text(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("esnlm.evaluation.measures._PART_TOKENS", 12)
    model = reservoir_model()
    Path("text").write_text("\n\n".join([*TEXTS, *DOCS]) + "\n")
    prepare("text", "shards", model.tokenizer_)
    for context in ("sentence", "document", 1):
        text, shards, _ = Evaluation([model], ["m"], "blank_line", context=context).rows(
            ["text", "shards"]
        )
        assert text["nll_per_token"] == pytest.approx(shards["nll_per_token"], rel=1e-6)
        assert text["n_tokens"] == shards["n_tokens"]


@pytest.mark.parametrize("context", ["paragraph", 0, -1, True, 1.5])
def test_other_contexts_are_refused(context: Any) -> None:
    with pytest.raises(ValueError, match="context must be 'sentence'"):
        reservoir_model().surprisal("the boy", context=context)


def test_a_model_that_reads_on_has_no_context(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(ValueError, match="that reads on over line ends"):
        in_context(ngrams("never"), TEXTS, 2)
    ngrams("never").save(tmp_path / "model")
    (tmp_path / "text").write_text("the boy\n")
    command = ["evaluate", str(tmp_path / "model"), str(tmp_path / "text"), "--context", "2"]
    assert main(command) == 2
    assert "leave context out" in capsys.readouterr().err
