"""Shakespeare's works, cut and matched; parts that share none; the study on a small text."""

import random

import numpy as np
import pytest

from esnlm.__main__ import main
from esnlm.evaluation.metrics import ngram_overlap
from esnlm.studies.shakespeare.works import (
    KIN,
    Opening,
    Work,
    cut_works,
    equal_parts,
    joined_text,
    matched_works,
    openings,
    shakespeare_works,
)
from esnlm.text.corpus import CorpusError

SPEAKERS = ("Ann", "Bob", "Cid")


#: What ``esnlm compare --generate 100`` writes, in part.
NETWORKS = """\
model,settings,seed,n_parameters,held_out_nll,train_seconds,generated_tokens,generation_seconds,\
overlap_7_train,overlap_8_train
aerc,{},0,15000,1.9,10,100,1,0.4,0.3
aerc,{},1,15000,2.1,20,100,3,0.6,0.3
transformer,{},0,15000,1.8,30,100,4,0.5,0.3
"""


def spoken(rng: random.Random, opening: str, n_speeches: int) -> str:
    """A play of random speeches that begins with ``opening``."""

    def words() -> str:
        return " ".join("".join(rng.choices("abdelnorst", k=5)) for _ in range(8))

    speeches = [f"{rng.choice(SPEAKERS)}:\n{words()}." for _ in range(n_speeches)]
    return "\n\n".join([f"{opening} {words()}.", *speeches]) + "\n"


def archaic(text: str) -> str:
    """The same in another spelling."""
    return text.replace("s", "sse").replace("n ", "nne ")


@pytest.fixture
def plays() -> tuple[str, str, list[Opening], dict[str, str]]:
    rng = random.Random(0)
    sizes = {"First": 30, "Second": 20, "Third": 25, "Poem": 6, "Last": 12, "Kin": 9}
    modern = {
        t: spoken(rng, f"{SPEAKERS[i % 3]}:\nOpening {t}", n)
        for i, (t, n) in enumerate(sizes.items())
    }
    folio = {t: archaic(text) for t, text in modern.items() if t not in ("Poem", "Kin")}
    table = [
        Opening(t, text[:16], archaic(text[:16]) if t in folio else None)
        for t, text in modern.items()
    ]
    return "\n".join(modern.values()), "\n".join(folio.values()), table, modern


def test_works_are_cut_and_matched_by_title(plays):
    modern, folio, table, texts = plays
    works = matched_works(modern, folio, table)
    assert [work.title for work in works] == list(texts)
    for work in works:
        assert work.modern == texts[work.title]
        assert work.folio == ("" if work.title in ("Poem", "Kin") else archaic(work.modern))
        assert len(work.texts) == 1 + bool(work.folio)
    assert "".join("\n".join(work.modern for work in works)) == modern


def test_parts_share_no_work_in_either_spelling(plays):
    modern, folio, table, texts = plays
    works = matched_works(modern, folio, table)
    kin = (frozenset({"Kin", "Poem"}),)
    parts = equal_parts(works, 3, kin)
    titles = [[work.title for work in part] for part in parts]
    assert sorted(title for part in titles for title in part) == sorted(texts)
    assert [len({"Kin", "Poem"} & set(part)) for part in titles].count(2) == 1
    sizes = [sum(map(len, part)) for part in parts]
    assert max(sizes) < 1.5 * min(sizes)
    for part in parts:
        rest = joined_text(work for other in parts if other is not part for work in other)
        for work in part:
            for text in work.texts:
                assert text.lower() not in rest
        words = joined_text(part).split()
        assert ngram_overlap(words, rest.split(), 7) < 0.01
    assert equal_parts(works, 3, kin) == parts


def test_parts_of_many_works_are_of_about_equal_size():
    rng = random.Random(1)
    works = [Work(str(k), "x" * rng.randrange(80, 170)) for k in range(60)]
    sizes = [sum(map(len, part)) for part in equal_parts(works, 6, ())]
    assert max(sizes) < 1.1 * min(sizes)


def test_too_many_parts_are_refused():
    with pytest.raises(ValueError, match="n_parts must be at most 2, the separate works, got 3"):
        equal_parts([Work("a", "a"), Work("b", "b")], 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ann:\nGo.\n\nBob:\nNo.\n\nAnn:\nGo.\n", r"A must begin once .* found 2 paragraphs"),
        ("Ann:\nStay.\n\nBob:\nNo.\n", r"A must begin once .* found 0 paragraphs"),
        ("Cid:\nHa.\n\nAnn:\nGo.\n\nBob:\nNo.\n", "begins with a work that is not in the table"),
    ],
)
def test_texts_that_the_table_does_not_fit(text, message):
    with pytest.raises(CorpusError, match=message):
        cut_works(text, [("A", "Ann:\nGo"), ("B", "Bob:\nNo")])


def test_the_table_has_every_work():
    table = openings()
    assert len(table) == 46 == len({row.title for row in table})
    assert sum(row.folio is not None for row in table) == 36
    assert all(row.modern for row in table)
    assert frozenset().union(*KIN) <= {row.title for row in table}
    assert Opening("Pericles", "Gower:\nTo sing a song", None) in table


def test_places_of_the_files(tmp_path):
    with pytest.raises(CorpusError, match="or the two files, got 3"):
        shakespeare_works([tmp_path] * 3)
    with pytest.raises(CorpusError, match=r"holds none of shakespeare\.txt"):
        shakespeare_works([tmp_path])
    file = tmp_path / "shakespeare.txt"
    with pytest.raises(CorpusError, match=f"no such file or folder: {file}"):
        shakespeare_works([file])
    file.write_text("ACT I\n")
    with pytest.raises(CorpusError, match="is one file: give both files, or the folder"):
        shakespeare_works([file])


def study_options(tmp_path, *more: str):
    return ["shakespeare", "texts", "--out", str(tmp_path / "out"), *more]


def test_sizes_come_near_the_parameters_asked_for():
    from esnlm.studies.shakespeare.command import ShakespeareOptions, study

    rows = study(ShakespeareOptions(), 52)
    sizes = [row["size"] for row in rows if row["model"] == "windows"]
    assert [round(52 * (size + 1), -3) for size in sizes] == pytest.approx(
        [15_000, 25_000, 50_000, 100_000, 155_000], abs=1000
    )
    assert [row["size"] for row in rows if row["model"] == "kneser-ney"] == [5, 7]


def test_windows_and_the_carried_state_agree(tmp_path):
    from esnlm import LanguageModel
    from esnlm.readouts.softmax.variants import NormalisedSoftmaxReadout
    from esnlm.studies.shakespeare.windows import (
        by_windows,
        drawn_by_windows,
        published_reservoir,
    )
    from esnlm.text.tokenizers import Tokenizer

    text = spoken(random.Random(2), "Ann:\nOpening", 60)
    tokenizer = Tokenizer.train_characters([text])
    reservoir = published_reservoir(80, len(tokenizer), random_state=1)
    assert 1.0 < reservoir.spectral_radius_ < 1.3
    readout = NormalisedSoftmaxReadout(solver="incremental")
    model = LanguageModel(reservoir, readout, tokenizer=tokenizer, reset="never").fit([text])
    tokens = model.tokenize([text]).tokens
    ends = np.arange(32, len(tokens), 7)
    logs, difference = by_windows(model, tokens, ends)
    states = np.array([reservoir.transform(tokens[end - 32 : end])[-1] for end in ends])
    normal = states - states.mean(axis=1, keepdims=True)
    normal /= np.sqrt(states.var(axis=1, keepdims=True) + 1e-5)
    exact = normal @ model.readout_.coef_.T + model.readout_.intercept_
    exact -= np.logaddexp.reduce(exact, axis=1, keepdims=True)
    np.testing.assert_allclose(logs, exact[np.arange(len(ends)), tokens[ends]], atol=1e-4)
    assert 0 < difference < 1e-3
    np.testing.assert_allclose(logs, model.log_likelihood([text])[0][ends - 1], atol=0.01)
    model.save(tmp_path / "model")
    again, _ = by_windows(LanguageModel.load(tmp_path / "model"), tokens, ends)
    np.testing.assert_array_equal(again, logs)
    drawn = drawn_by_windows(model, text[:40], 50, seed=0)
    assert len(drawn) == 50
    assert drawn == drawn_by_windows(model, text[:40], 50, seed=0)
    with pytest.raises(ValueError, match=r"ends must lie in \[32,"):
        by_windows(model, tokens, np.array([3]))


@pytest.mark.usefixtures("in_this_process")
def test_the_command_writes_rows_once_and_a_plot(tmp_path, plays, monkeypatch, capsys):
    from esnlm.runs.grid import read_rows
    from esnlm.studies.shakespeare import command

    modern, folio, table, _ = plays
    works = matched_works(modern, folio, table)
    monkeypatch.setattr("esnlm.studies.shakespeare.works.shakespeare_works", lambda places: works)
    monkeypatch.setattr(command, "PARTS", 3)
    models = ["real text", "kneser-ney", "windows", "carried", "gated", "direct"]
    more = ["--models", *models, "--units", "40", "--orders", "3", "--characters", "200"]
    args = study_options(tmp_path, *more)
    assert main(args) == 0
    rows = read_rows(tmp_path / "out" / "shakespeare.csv")
    assert [row["model"] for row in rows] == models
    for row in rows[1:]:
        assert 0 < row["cross_entropy"] < 4
        assert 0 <= row["overlap_8_train"] <= row["overlap_7_train"] <= 1
        assert row["n_parameters"] <= row["n_parameters_total"]
    parts = read_rows(tmp_path / "out" / "works.csv")
    assert {row["part"] for row in parts} == {1, 2, "test"}
    assert len((tmp_path / "out" / "samples" / "gated-40.txt").read_text()) == 200
    before = (tmp_path / "out" / "shakespeare.csv").read_bytes()
    plain = (tmp_path / "out" / "shakespeare.png").read_bytes()
    networks = tmp_path / "compare.csv"
    networks.write_text(NETWORKS)
    assert main([*args, "--networks", str(networks)]) == 0
    assert (tmp_path / "out" / "shakespeare.csv").read_bytes() == before
    drawn = (tmp_path / "out" / "shakespeare.png").read_bytes()
    assert drawn.startswith(b"\x89PNG")
    assert drawn != plain
    assert main([*args[:-1], "300"]) == 2
    assert "holds runs with generated_characters = 200, got 300" in capsys.readouterr().err
    assert (tmp_path / "out" / "shakespeare.csv").read_bytes() == before


def test_networks_are_drawn_as_means_over_seeds(tmp_path):
    from esnlm.studies.shakespeare.plots import network_rows, study_figure

    (tmp_path / "compare.csv").write_text(NETWORKS)
    rows = network_rows(tmp_path / "compare.csv")
    assert list(rows["model"]) == ["aerc", "transformer"]
    assert (rows["cross_entropy"][0], rows["overlap_7_train"][0]) == (2.0, 0.5)
    assert rows["seconds_per_character"][0] == pytest.approx(0.02)
    loss, overlap, times = study_figure([], rows).axes
    assert [len(axis.lines) for axis in (loss, overlap, times)] == [2 + 3, 4, 4]
    (tmp_path / "compare.csv").write_text("model,settings\naerc,{}\n")
    with pytest.raises(ValueError, match="has no column generation_seconds: expected the CSV of"):
        network_rows(tmp_path / "compare.csv")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--passes", "0"), "--passes must be at least 1, got 0"),
        (("--units", "3"), "--units must be at least 32, got 3"),
        (
            ("--spectral-radius", "nan"),
            "--spectral-radius must be at least 0 and finite, got nan",
        ),
        ((), "no such file or folder: texts"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(tmp_path, option, message, capsys):
    assert main(study_options(tmp_path, *option)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
