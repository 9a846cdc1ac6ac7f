"""The page of the papers' figures: each command trains the paper's system, and runs when small."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from esnlm.__main__ import main
from esnlm.runs.grid import read_rows

PAGE = (Path(__file__).parent.parent / "docs" / "guide" / "figures.md").read_text("utf-8")
TEXT = "the boy sees the dog\nthe dogs see the boy\nthe girl walks with the boy\n" * 20
PAIR = {"sentence_good": "the dogs see", "sentence_bad": "the dogs sees", "linguistics_term": "n"}
#: Vocabulary of GPT-2, which all systems of Ueda et al. have.
V = 50_257
#: Ueda et al. 2025, table 3: trainable and all parameters, in millions.
TABLE_3 = {1024: (26, 28), 2048: (27, 29), 4096: (28, 30), 8192: (30, 32), 16384: (34, 36),
           32768: (43, 45), 65536: (59, 63)}  # fmt: skip
#: The same, table 4: all parameters by degree.
TABLE_4 = {1: 28, 2: 28, 4: 28, 8: 28, 16: 29, 32: 30, 64: 31, 128: 35, 256: 42, 512: 56,
           1024: 84, 2048: 139, 4096: 251}  # fmt: skip
#: Ueda et al. 2025b, table 1: trainable parameters of ESN and of ESN+i.
TABLE_1 = {64: (3, 6), 128: (6, 12), 256: (12, 25), 512: (25, 51), 1024: (51, 102),
           2048: (102, 205)}  # fmt: skip
PAPER_ESN = {
    "topology": "bernoulli", "spectral_radius": 0.99, "input_scaling": 1.0, "bias_scaling": 0.0,
    "activation": "tanh",
}  # fmt: skip
PAPER_ESN_I = PAPER_ESN | {"spectral_radius": 0.993, "activation": "relu", "leak_rate": 0.8}


def commands(section: str) -> dict[str, list[str]]:
    """Words of the commands of a section by the item of their row, without ``esnlm``."""
    (text,) = re.findall(rf"^## {section}.*?$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {
        row[0].partition(":")[0]: shlex.split(row[1].strip("`"))[1:]
        for row in rows
        if row[1].startswith("`esnlm")
    }


RACHEZ = commands("Rachez & Hagiwara")
SCALE = commands("Ueda et al., syntactic")
FROZEN = commands("Ueda et al., frozen")
MAHTO = commands("Mahto et al.")
KOSTER = commands("Köster & Uchida")
#: Köster & Uchida, table 1 and the authors' code: settings from 15 000 to 155 000 parameters.
KOSTER_SIZES = {
    "aerc": [(75, 13), (75, 19), (100, 20), (150, 25), (160, 30)],
    "transformer": [(64, 4, 4), (72, 8, 8), (128, 8, 8), (356, 8, 8), (256, 16, 16)],
}


@pytest.fixture(autouse=True)
def _corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of a small text and minimal pairs, where the commands of the page look for them."""
    monkeypatch.chdir(tmp_path)
    Path("text").write_text(TEXT)
    Path("blimp").mkdir()
    Path("blimp/n.jsonl").write_text(json.dumps(PAIR))
    tokenizer = "word"
    for name in ("train", "dev"):
        assert main(["prepare", "text", "--tokenizer", tokenizer, "--out", f"shards/{name}"]) == 0
        tokenizer = "shards/train/tokenizer.json"


def grid_of(words: list[str], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return model, settings and plan of every run of a comparison, none of which is run."""
    runs: list[dict[str, Any]] = []

    def remember(rows: Any, *_: Any, **__: Any) -> Any:
        runs.extend(rows)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("esnlm.studies.networks.command.run_grid_apart", remember)
        assert main(words) == 130
    return [
        {"model": run["model"]} | {name: json.loads(run[name]) for name in ("settings", "plan")}
        for run in runs
        if run["seed"] == 0
    ]


def trained(run: dict[str, Any]) -> int:
    from esnlm.torch.networks.registry import merged, n_trained, network_class

    settings = run["settings"]
    if "reservoir" in settings:
        defaults = network_class(run["model"]).RESERVOIR
        settings = merged({"reservoir": defaults}, settings)
    return n_trained(run["model"], settings, V)


def reservoir_of(run: dict[str, Any], n_units: int = 8) -> Any:
    """Return the reservoir that a run has, of so few units and connections as are drawn quickly."""
    from esnlm.torch.networks.registry import merged, network_class

    own = run["settings"].get("reservoir", {})
    small = {"n_units": n_units, "degree": min(own.get("degree", 4), n_units), "random_state": 1}
    kind = network_class(run["model"])
    return kind(9, **merged(run["settings"], {"reservoir": small})).reservoir


def default_plan(run: dict[str, Any]) -> bool:
    """Whether training is AdamW as torch has it, one pass in batches of 32 sentences."""
    from esnlm.torch.training.plan import Plan

    plan = Plan(**run["plan"])
    return plan == Plan(length=plan.length)


@pytest.mark.torch
def test_table_3_has_the_papers_sizes(monkeypatch):
    pytest.importorskip("transformers")
    runs = grid_of(SCALE["table 3"], monkeypatch)
    esn = {run["settings"]["reservoir"]["n_units"]: run for run in runs if run["model"] == "esn"}
    assert esn.keys() == TABLE_3.keys()
    for n, (trainable, everything) in TABLE_3.items():
        frozen = 32 * n + 32 * V + n  # equation 9
        assert round(trained(esn[n]) / 1e6) == trainable
        assert round((trained(esn[n]) + frozen) / 1e6) == everything
    others = {run["model"]: round(trained(run) / 1e6) for run in runs if run["model"] != "esn"}
    assert others == {"lstm": 54, "gpt2": 124}
    assert all(default_plan(run) for run in runs)


@pytest.mark.torch
@pytest.mark.parametrize("item", ["table 4", "table 5"])
def test_tables_4_and_5_are_the_papers_reservoir(item, monkeypatch):
    pytest.importorskip("torch")
    from esnlm.torch.networks.esn import EchoStateNetwork

    runs = grid_of(SCALE[item], monkeypatch)
    varied = [run["settings"]["reservoir"] for run in runs]
    defaults = EchoStateNetwork.RESERVOIR
    assert (defaults["n_units"], defaults["degree"], defaults["input_degree"]) == (4096, 32, 32)
    assert defaults["leak_rate"] == ("uniform", 0.0, 1.0)
    if item == "table 4":
        assert varied == [{"degree": d, "input_degree": d} for d in TABLE_4]
        for run, (degree, everything) in zip(runs, TABLE_4.items(), strict=True):
            assert round(trained(run) / 1e6) == 28
            total = trained(run) + (4096 + V) * degree + 4096
            assert round(total / 1e6) == everything
    else:
        laws = [rate[1:] if isinstance(rate, list) else rate for rate in
                (each["leak_rate"] for each in varied)]  # fmt: skip
        assert laws == [[0, 1], *([n / 10, 1] for n in range(1, 10)), 1]
    for run in (runs[0], runs[-1]):
        assert PAPER_ESN.items() <= reservoir_of(run).get_params().items()
        assert default_plan(run)


@pytest.mark.torch
def test_table_1_has_the_sizes_of_esn_and_of_esn_i(monkeypatch):
    pytest.importorskip("transformers")
    runs = grid_of(FROZEN["table 1"], monkeypatch)
    for number, trains in enumerate((False, True)):
        of_kind = {
            run["settings"]["reservoir"]["n_units"]: run
            for run in runs
            if run["model"] == "esn+i" and run["settings"].get("train_embedding", True) is trains
        }
        assert {n: trained(run) // 10**6 for n, run in of_kind.items()} == {
            n: counts[number] for n, counts in TABLE_1.items()
        }
    assert {run["model"] for run in runs} == {"esn+i", "lstm", "gpt2"}
    assert all(run["plan"]["length"] == 128 and default_plan(run) for run in runs)


@pytest.mark.torch
def test_table_2_has_all_radii(monkeypatch):
    pytest.importorskip("torch")
    from esnlm.torch.networks.registry import network_class

    runs = grid_of(FROZEN["table 2"], monkeypatch)
    radii = [run["settings"]["reservoir"]["spectral_radius"] for run in runs]
    assert radii == [n / 10 for n in range(5, 18)]
    assert {trained(run) // 10**6 for run in runs} == {51}
    kind = network_class("esn+i")
    assert (kind.RESERVOIR["n_units"], kind.arguments()["dropout"]) == (512, 0.1)
    reservoir = kind(9, reservoir={"n_units": 8}).reservoir
    assert (PAPER_ESN_I | {"degree": 4}).items() <= reservoir.get_params().items()
    assert reservoir.input_degree is None


SMALL_RUNS = [
    (SCALE["table 3"], "reservoir.n_units=8", ["esn:rank=4", "lstm:n_units=6"]),
    (SCALE["table 4"], "reservoir.degree,reservoir.input_degree=1",
     ["esn:reservoir.n_units=12,rank=4"]),
    (SCALE["table 5"], "reservoir.leak_rate=uniform:0.1:1", ["esn:reservoir.n_units=12,rank=4"]),
    (FROZEN["table 1"], "reservoir.n_units=6", ["esn+i:train_embedding=false", "esn+i"]),
    (FROZEN["table 2"], "reservoir.spectral_radius=1.7", ["esn+i:reservoir.n_units=8"]),
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize(("words", "vary", "models"), SMALL_RUNS)
@pytest.mark.usefixtures("in_this_process")
def test_a_comparison_of_the_page_runs_when_small(words, vary, models):
    pytest.importorskip("torch")
    smaller = {"--vary": [vary], "--models": models, "--seeds": ["1"]}
    assert main(with_options(words, smaller)) == 0
    rows = read_rows(Path(words[words.index("--out") + 1], "compare.csv"))
    assert len(rows) == len(models)
    for row in rows:
        assert 0 < row["held_out_nll"] < 10
        assert 0 < row["training_loss"] < 10
        assert 0 <= row["blimp"] <= 1


@pytest.mark.torch
def test_the_recipe_of_the_page_trains():
    pytest.importorskip("torch")
    small = ["--units", "12", "--rank", "4", "--tokenizer", "word", "--device", "cpu"]
    words = [word.replace("TEXT", "text") for word in SCALE["tables 1 and 2"]]
    assert main([*words, *small]) == 0
    config = json.loads(Path("model", "config.json").read_text())
    assert "bernoulli" in json.dumps(config)


@pytest.mark.parametrize("item", RACHEZ)
def test_an_elman_command_of_the_page_is_section_4_of_the_paper(item):
    corpora = ["--train-sentences", "100", "--test-sentences", "40", "--jobs", "1"]
    features = [] if "--features" in RACHEZ[item] else ["--features", "2"]
    small = ["--sizes", "5", "--seeds", "1", *features, *corpora, "--no-plots"]
    assert main([*RACHEZ[item], *small]) == 0
    rows = pd.read_csv(Path(RACHEZ[item][RACHEZ[item].index("--out") + 1], "elman.csv"))
    paper = {"spectral_radius": 0.97, "input_scaling": 1.0, "leak_rate": 1.0, "reset": "never",
             "experts": 10, "word_features": "gradient", "standardised": False}  # fmt: skip
    for name, value in paper.items():
        assert set(rows[name]) == {value}, name
    by_readout = rows.set_index("readout")["n_parameters"]
    # 24 words: 24 outputs of 5 states and an intercept, and two features a word.
    softmax, features_of = 24 * (5 + 1), 24 * 2
    mixture = 10 * softmax + 10 * (5 + 1) + features_of
    if "--assignment" in RACHEZ[item]:
        assert by_readout["factored"] == mixture
        assert set(rows["assignment"]) == {"position"}
        return
    assert set(rows["assignment"]) == {"clusters"}
    # Ten classes, and the words of each class that has more than one.
    assert by_readout["factored"] <= (10 + 24) * (5 + 1) + features_of
    if "ridge" in by_readout:
        assert by_readout["softmax"] == softmax + features_of
        assert by_readout["moe"] == mixture


def with_options(words: list[str], values: dict[str, list[str]]) -> list[str]:
    """Return a command with other values of its options."""
    out: list[str] = []
    replaced = False
    for word in words:
        if word.startswith("--"):
            out.append(word)
            replaced = word in values
            out += values.get(word, [])
        elif not replaced:
            out.append(word)
    return out


def test_dyck_runs_at_the_papers_settings():
    """Mahto et al., section 3.1.2."""
    from esnlm.studies.dyck.options import DyckOptions

    assert MAHTO["figure 2"] == ["dyck", "--out", "dyck"]
    options = DyckOptions()
    assert (options.units, options.seeds, options.alpha) == ((256,), 20, 1.5)
    assert (options.train, options.validation, options.test) == (10_000, 2_000, 5_000)
    assert (options.max_length, options.passes, options.learning_rate) == (200, 2_000, 1e-4)


def test_frozen_reservoirs_read_dyck():
    argv = MAHTO["figure 2 with frozen reservoirs"]
    small = ["--units", "16", "--train", "80", "--validation", "40", "--test", "60"]
    assert main([*argv, *small, "--max-length", "40"]) == 0
    rows = pd.read_csv("dyck/dyck.csv")
    readouts, leaks = rows.groupby("model")["readout"].nunique(), rows["leak"].unique()
    assert readouts.to_dict() == {"esn": 4, "stack": 4}
    assert list(leaks) == ["0.3", "uniform:0:0.9", "inverse_gamma:0.56"]
    assert (rows[(rows["model"] == "stack") & (rows["readout"] == "ridge")]["right"] == 1).all()


@pytest.mark.torch
def test_attention_reads_frozen_states_of_dyck():
    pytest.importorskip("torch")
    argv = MAHTO["figure 2, attention to frozen states"]
    small = ["--units", "16", "--train", "80", "--validation", "40", "--test", "60"]
    assert main([*argv, *small, "--max-length", "40", "--passes", "2"]) == 0
    rows = pd.read_csv("dyck/dyck.csv")
    assert rows[["readout", "leak"]].to_numpy().tolist() == [
        ["attention", "inverse_gamma:0.56"],
        ["attention", "inverse_gamma:0.2"],
    ]


@pytest.mark.torch
def test_the_multi_timescale_lstm_is_the_papers():
    """Mahto et al., section 3.1.1, and the words of section A.6."""
    torch = pytest.importorskip("torch")
    from esnlm.torch.networks.multi_timescale_lstm import MultiTimescaleLSTM

    argv = MAHTO["section A.6"]
    assert argv[argv.index("--model") + 1] == "mts-lstm"
    name, _, value = argv[argv.index("--option") + 1].partition("=")
    with torch.device("meta"):
        paper = MultiTimescaleLSTM(10_000)
        other = MultiTimescaleLSTM(10_000, **{name: json.loads(value)})
    assert [layer.n_units for layer in paper.layers] == [1150, 1150, 400]
    for layer in range(2):
        expected = paper.assigned_timescales(layer).tolist()
        assert other.assigned_timescales(layer).tolist() == expected
    assert paper.assigned_timescales(2) is other.assigned_timescales(2) is None


@pytest.mark.torch
def test_timescales_are_measured_and_drawn(capsys):
    pytest.importorskip("torch")
    Path("TEXT").write_text(TEXT)
    Path("TEST").write_text(TEXT)
    small = "--units 6 --option n_dims=4 --tokenizer word --reset never --documents file"
    for name, text in (("mts", "TEXT"), ("awd", "TEXT"), ("awd-markov", "copy")):
        kind = name.partition("-")[0] + "-lstm"
        argv = ["train", text, "--model", kind, *small.split()]
        assert main([*argv, "--device", "cpu", "--out", name]) == 0
        if name == "awd":
            argv = ["timescales", "awd", "TEXT", "--documents", "file", "--markov-copy", "copy"]
            assert main(argv) == 0
    argv = ["train", "TEXT", "--units", "6", "--leak-rate", "inverse_gamma:0.56"]
    assert main([*argv, *small.split()[4:], "--out", "reservoir"]) == 0
    items = "1", "3", "3 with a frozen reservoir", "4", "5", "9"
    for item in ("table 1", "figures 6, 7, 8", *(f"figure {item}" for item in items)):
        assert main(MAHTO[item]) == 0, capsys.readouterr().err
    plots = [f"figure_{number}.png" for number in (1, 4, 5, 7, 9)]
    assert all(Path(plot).stat().st_size > 10_000 for plot in plots)
    assert len(pd.read_csv("bins.csv")) > 5
    routing = pd.read_csv("routing.csv")
    assert {"determiner", "other words"} <= {*routing["bin"]}
    assert (routing.groupby("by")["n_tokens"].sum().nunique()) == 1
    assert Path("routing_reservoir.png").exists()


@pytest.mark.torch
def test_character_networks_have_the_papers_sizes_and_training(monkeypatch):
    pytest.importorskip("torch")
    from esnlm.torch.networks.registry import n_trained

    characters = "abcdefghijklmnopqrstuvwxyz0123456789 .,;:!?'&-[]"
    assert len(characters) == 48
    for name in ("TEXT", "TEST"):
        Path(name).write_text(characters.upper() + characters)
    runs = grid_of(KOSTER["table 1"], monkeypatch)
    assert {run["model"] for run in runs} == {"char-esn", *KOSTER_SIZES}
    names = {"aerc": ["n_units", "n_hidden"], "transformer": ["n_hidden", "n_heads", "n_layers"]}
    for model, sizes in KOSTER_SIZES.items():
        own = [run["settings"] for run in runs if run["model"] == model]
        assert [tuple(each[name] for name in names[model]) for each in own] == sizes
    ends = [
        [n_trained(run["model"], run["settings"], 48) for run in runs if run["model"] == model]
        for model in ("char-esn", *KOSTER_SIZES)
    ]
    for sizes in ends:
        assert (sizes[0], sizes[-1]) == pytest.approx((15_000, 155_000), rel=0.05)
    paper = {"length": 32, "stride": 1, "batch_size": 1024, "learning_rate": 1e-4, "n_passes": 5}
    paper["parts"] = 5
    assert all(paper.items() <= run["plan"].items() for run in runs)
    # The reservoirs are drawn beside these networks.
    assert KOSTER["figure 2"][:2] == ["shakespeare", "TEXTS"]
    networks = KOSTER["figure 2"][KOSTER["figure 2"].index("--networks") + 1]
    assert networks == f"{KOSTER['table 1'][-1]}/compare.csv"


@pytest.mark.torch
def test_laerc_is_the_papers(monkeypatch):
    """Köster & Uchida, appendix A: equations 13 and 14, 65 536 tokens a step."""
    pytest.importorskip("transformers")
    from esnlm.torch.networks.laerc import LayeredReservoirs
    from esnlm.torch.training.plan import Plan

    runs = grid_of(KOSTER["figures 6 and 7"], monkeypatch)
    assert [run["model"] for run in runs] == ["laerc"] * 4 + ["gpt2"] * 4
    plans = {Plan(**run["plan"]) for run in runs}
    assert plans == {Plan(**LayeredReservoirs.RECIPE)}
    (plan,) = plans
    assert plan.length * plan.batch_size * plan.accumulate == 65_536
    for run in runs[:4]:
        assert run["settings"].keys() == {"n_dims", "n_layers"}
    with_defaults = LayeredReservoirs.arguments()
    assert (with_defaults["measure"], with_defaults["expansion"]) == ("eigenvalue", 4)
    assert with_defaults["radius"] < with_defaults["last_radius"] < 1
    assert not with_defaults["reservoir_gradient"]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("item", "models"), [("table 1", ["aerc:context=4"]), ("figures 6 and 7", ["laerc"])]
)
@pytest.mark.usefixtures("in_this_process")
def test_networks_of_three_sizes_have_power_laws_of_loss_and_time(item, models):
    pytest.importorskip("torch")
    for name in ("TEXT", "TEST"):
        Path(name).write_text(TEXT)
    plan = ["n_passes=1", "length=4", "batch_size=64"]
    smaller = {"--models": models, "--sizes": ["1500", "3000", "6000"], "--plan": plan}
    words = with_options(KOSTER[item], smaller | {"--generate": ["20"]})
    assert main(words) == 0
    out = Path(words[words.index("--out") + 1])
    laws = set(pd.read_csv(out / "power_laws.csv")["quantity"])
    logs = pd.concat(map(pd.read_csv, (out / "logs").iterdir()))
    assert logs["training_nll"].notna().all()
    assert logs["held_out_nll"].notna().all() == (item == "table 1")
    times = {"train_seconds", "generation_seconds"}
    rows = read_rows(out / "compare.csv")
    if item == "table 1":
        assert laws >= times | {f"{name}_without_reservoir" for name in times}
        assert all(0 <= row["overlap_8_held_out"] <= row["overlap_7_held_out"] for row in rows)
    assert laws >= {"held_out_nll", "least_training_nll", "train_seconds"}
    assert all((out / f"{plot}.png").exists() for plot in ("compare", "curves", "power_laws"))


@pytest.mark.torch
@pytest.mark.parametrize("item", ["table 2", "figure 10"])
@pytest.mark.usefixtures("in_this_process")
def test_multi_timescale_lstms_are_compared_at_the_papers_settings(item, monkeypatch):
    torch = pytest.importorskip("torch")
    from esnlm.torch.networks.registry import network_class
    from esnlm.torch.training.plan import Plan

    for name in ("TEXT", "TEST", "VALID"):
        Path(name).write_text(TEXT)
    runs = grid_of(MAHTO[item], monkeypatch)
    assert {run["model"] for run in runs} == {"awd-lstm", "mts-lstm"}
    for run in runs:
        with torch.device("meta"):
            network = network_class(run["model"])(10_000, **run["settings"])
        assert [layer.n_units for layer in network.layers] == [1150, 1150, 400]
        plan = Plan(**run["plan"])
        assert (plan.batching, plan.batch_size, plan.length) == ("streams", 20, 70)
        assert (plan.optimizer, plan.n_passes, plan.vary_length) == ("sgd", 1000, True)
        # A pass of Penn Treebank, after which Merity et al. look whether to average.
        assert plan.score_every == 929_589 // (plan.batch_size * plan.length) + 1
    small = {"--models": ["awd-lstm:n_units=4,n_dims=3", "mts-lstm:n_units=4,n_dims=3"]}
    if item == "table 2":
        assert MAHTO[item][MAHTO[item].index("--seeds") + 1] == "5"
        small["--seeds"] = ["2"]
    else:
        small["--vary"] = ["alpha=0.3,1.5"]
    first = MAHTO[item].index("n_passes=1000")
    small["--plan"] = ["n_passes=2", *MAHTO[item][first + 1 : first + 7]]
    assert main(with_options(MAHTO[item], small)) == 0
    out = Path(MAHTO[item][MAHTO[item].index("--out") + 1])
    rows = read_rows(out / "compare.csv")
    assert len(rows) == (4 if item == "table 2" else 3)
    assert all(row["perplexity <100"] > 0 for row in rows)
    summary = (out / "compare.md").read_text()
    assert ("Means over seeds, and their standard errors" in summary) is (item == "table 2")
