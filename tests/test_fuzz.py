"""Readers of strangers' files refuse by one line, on the corpora of the fuzzer and on changes."""

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from fuzz import targets
from fuzz.mutation import mutated

CORPUS = Path(__file__).parent / "fuzz" / "corpus"
CASES = sorted(CORPUS.glob("*/*"))
_CHANGES = 2


def test_every_target_has_a_corpus() -> None:
    assert {path.parent.name for path in CASES} == set(targets.TARGETS)


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}-{path.name}")
@pytest.mark.filterwarnings("ignore")
def test_a_case_and_changes_to_it_are_read_or_refused_in_one_line(case: Path) -> None:
    name, data, rng = case.parent.name, case.read_bytes(), random.Random(0)
    assert targets.check(name, data) == ""
    for _ in range(_CHANGES):
        targets.check(name, mutated(data, rng))


#: What a campaign found, by target: the bytes, and a part of the message.
FOUND = {
    "pairs": [
        (
            b'=== p.jsonl\n{"sentence": "a", "label": 1}\n{"senteNce": "b", "grammaticality": 0}\n',
            "",
        ),
        (b'=== p.csv\n"a\nb"\n1\n', "the fields are a b"),
    ],
    "arpa": [
        (
            b"=== m.arpa\n\\data\\\nngram 1=2\n\n\\1-grams:\n0.5\t<unk>\n-1\ta\n\n\\end\\\n",
            "expected a logarithm of at most 0",
        ),
        (
            b"=== m.arpa\n\\data\\\nngram 1=2\n\n\\1-grams:\nnan\t<unk>\n-1\ta\n\n\\end\\\n",
            "m.arpa is not a whole ARPA file",
        ),
    ],
    "results": [
        (
            b"=== rows.csv\nmodel,size,cross_entropy,window_cross_entropy\nm,1,1,1\n",
            "rows.csv has no column 'n_parameters'",
        ),
    ],
    "suites": [
        (
            b'=== suite.json\n{"meta": {"name": "a", "metric": "sum"}, "predictions": [],'
            b' "items": [{"item_number": Infinity, "conditions": []}]}\n',
            "suite.json is no suite of SyntaxGym",
        ),
    ],
    "formula": [
        (b"=== f\n" + b"(" * 400, "too many brackets"),
        (
            b"=== f\n1" + b"+1" * 3000 + b"<2",
            "expected at most 500",
        ),
    ],
    "tables": [
        (
            b"=== suites.csv.gz\nmodel,suite,accuracy\n",
            "suites.csv.gz is not a whole gzip file: Not",
        ),
        (
            b"=== suites\nmodel,suite,accuracy\na,b," + b"9" * 400 + b"\n",
            "suites has accuracies that are no numbers in [0, 1]",
        ),
    ],
    "toml": [
        (b'=== recipe.toml\nleak-rate = "unif:0:1"\n', "recipe.toml: expected a number, uniform:"),
    ],
}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [(name, *case) for name, cases in FOUND.items() for case in cases],
)
def test_what_was_found_is_refused_by_its_file(name: str, data: bytes, message: str) -> None:
    assert message in targets.check(name, data)


def changed(name: str, case: str, change) -> str:
    """The message of a case whose JSON object was changed."""
    content = json.loads((CORPUS / name / case).read_text())
    change(content)
    return targets.check(name, json.dumps(content).encode())


def test_tokenizers_that_cannot_be_used_name_their_file() -> None:
    data = (CORPUS / "tokenizer" / "word").read_text()
    assert "/tokenizer.json cannot be used" in targets.check(
        "tokenizer", data.replace('"<s>": {', '"x": {').encode()
    )


def test_shards_whose_manifest_has_other_types_name_it() -> None:
    def set_count(content) -> None:
        content["manifest"]["n_tokens_vocab"] = "many"

    assert "manifest.json does not describe whole shards" in changed("shards", "words", set_count)


def test_checkpoints_whose_arrays_do_not_fit_name_their_folder() -> None:
    content = json.loads((CORPUS / "checkpoint" / "ridge").read_text())
    name = next(each for each in content["arrays"] if each.endswith("gram"))
    content["arrays"][name]["dtype"] = "int64"
    content["arrays"][name]["data"] = [1] * len(content["arrays"][name]["data"])
    message = targets.check("checkpoint", json.dumps(content).encode())
    assert "step-0000000001 is not a whole checkpoint" in message


def test_journals_with_a_wrong_line_or_without_one_say_so() -> None:
    lines = (CORPUS / "journal" / "three_trials").read_bytes().splitlines(keepends=True)
    wrong = b"".join([*lines[:3], b"{no\n", *lines[3:]])
    assert "line 3 is no JSON object" in targets.check("journal", wrong)
    assert "before trial 1 a line is missing" in targets.check(
        "journal", b"".join([*lines[:-3], *lines[-2:]])
    )
