"""Subject-verb agreement: beginnings of sentences, and what is read after them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_cases import BENCHMARKS

pytestmark = pytest.mark.torch

NOUNS = [(word, word + "s") for word in ("bird", "book", "girl", "hat", "lake", "rock")]


@pytest.fixture
def agreement(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(BENCHMARKS)
    return pytest.importorskip("agreement")


def test_beginnings_say_their_numbers_and_share_no_noun(agreement: Any) -> None:
    known, new = agreement.beginnings(NOUNS, "The {} near the {}", 50, 0)
    nouns = []
    for part in (known, new):
        subjects, others = zip(
            *((b.text.split()[1], b.text.split()[-1]) for b in part), strict=True
        )
        assert [word.endswith("s") for word in subjects] == [b.plural for b in part]
        assert [word.endswith("s") for word in others] == [b.nearer for b in part]
        nouns.append({word.rstrip("s") for word in subjects + others})
    assert not nouns[0] & nouns[1]
    assert {(b.plural, b.nearer) for b in new} == {(a, b) for a in (0, 1) for b in (0, 1)}


def test_nouns_are_those_whose_number_alone_differs(agreement: Any, tmp_path: Path) -> None:
    pairs = [
        ("See this bird.", "See this birds."),
        ("See this man.", "See this men."),
        ("See this Ann.", "See this Anns."),
        ("See this girl.", "Saw this girls."),
    ]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in pairs]
    for name in agreement.NOUNS:
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    letters = type("Letters", (), {"encode": staticmethod(str.split)})
    assert agreement.short_nouns(tmp_path, letters) == [("bird", "birds")]


def test_a_number_that_is_there_is_found_and_one_that_is_not_is_not(
    agreement: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0)

    def read(_: Any, part: Any) -> dict[str, Any]:
        plural = np.array([each.plural for each in part], dtype=float)
        nearer = np.array([each.nearer for each in part], dtype=float)
        told = plural[:, None] + 0.1 * noise.standard_normal((len(part), 3))
        return {"state": told, "hidden": noise.standard_normal((len(part), 3)), "predicts": nearer}

    monkeypatch.setattr(agreement, "_read", read)
    known, new = agreement.beginnings(NOUNS, "The {} near the {}", 400, 1)
    right = dict(agreement.judged(None, known, new))
    same = np.array([each.plural == each.nearer for each in new])
    assert right["state"].mean() == 1
    assert 0.4 < right["hidden"].mean() < 0.6
    assert not right["predicts"][~same & np.array([each.nearer for each in new])].any()
