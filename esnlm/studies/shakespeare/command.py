"""``esnlm shakespeare``: Köster & Uchida's single-reservoir study on Shakespeare's characters.

Six parts by whole works, five to train on and one to test. Reservoirs of five sizes in the
published setting and in ours, Kneser-Ney n-grams, and what real text would score: a CSV, a plot.
"""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.options.common import Folder, finish, group, names, results_folder
from esnlm.options.needs import check_needs
from esnlm.options.values import Cluster, LeakRate, Seed, file_name, integer, not_negative, positive
from esnlm.runs.grid import Row, read_rows, run_grid_apart
from esnlm.storage.results import write_rows

MODELS = ("real text", "kneser-ney", "windows, dense", "windows", "carried", "gated", "direct")
PARTS = 6
_KEY = ("model", "size", "settings")
COLUMNS = (
    *_KEY, "vocabulary", "n_parameters", "n_parameters_total", "n_train_characters",
    "n_test_characters", "cross_entropy", "window_cross_entropy", "carried_cross_entropy",
    "state_difference", "generated_characters", "overlap_7_train", "overlap_8_train",
    "overlap_7_test", "overlap_8_test", "fit_seconds", "seconds_per_character", "peak_rss_mib",
    "cores", "commit",
)  # fmt: skip
_SPARSE_DEGREE = 32


@group()
class ShakespeareOptions:
    """Options of ``esnlm shakespeare``."""

    out: Folder = Path("shakespeare")
    """Folder of the CSVs and plots."""
    models: Annotated[tuple[str, ...], names(MODELS)] = (
        "real text", "kneser-ney", "windows", "carried",
    )  # fmt: skip
    """Models to run."""
    parameters: tuple[Annotated[int, integer("P", 1000)], ...] = (
        15_000, 25_000, 50_000, 100_000, 155_000,
    )  # fmt: skip
    """Trained parameters, by which the units of the reservoirs are chosen."""
    units: tuple[Annotated[int, integer("N", 32)], ...] = ()
    """Units of the reservoirs, in the place of --parameters."""
    orders: tuple[Annotated[int, integer("N", 1)], ...] = (5, 7)
    """Longest n-grams."""
    passes: Annotated[int, integer("P", 1)] = 1
    """Passes over the training text."""
    alpha: Annotated[float, positive("A")] = 3.0
    """L2 penalty."""
    spectral_radius: Annotated[float, not_negative("R")] = 0.7
    """Spectral radius of carried, gated and direct."""
    input_scaling: Annotated[float, positive("S")] = 2.0
    """Standard deviation of the input weights of carried, gated and direct."""
    degree: Annotated[int, integer("D", 1)] = 16
    """Connections into a unit of carried, gated and direct."""
    leak_rate: LeakRate = None
    """Leak rate of carried, gated and direct: a number in (0, 1], uniform:LOW:HIGH or
    inverse_gamma:ALPHA (default: 1)."""
    direct: Annotated[int, integer("K", 1)] = 8
    """Last characters whose n-grams direct also reads, past the reservoir."""
    seed: Seed = 0
    """Seed of the weights of carried, gated and direct."""
    characters: Annotated[int, integer("N", 100)] = 10_000
    """Characters to generate for the overlap."""
    networks: Annotated[Path | None, file_name("CSV")] = None
    """Networks to draw too: the CSV of compare --generate on the same text."""
    cluster: Cluster = None


Plays = Annotated[
    tuple[str, ...],
    Parameter(
        "TEXT",
        help="shakespeare.txt and shakespeare-first-folio.txt, plain or .gz, or the folder that"
        " holds both.",
    ),
]


def shakespeare(texts: Plays, /, *, options: ShakespeareOptions = ShakespeareOptions()) -> int:
    """Run what ``shakespeare.csv`` does not hold yet: 0 when all is done, 130 when interrupted."""
    from esnlm.plots.figures import save
    from esnlm.studies.shakespeare.plots import network_rows, study_figure
    from esnlm.studies.shakespeare.works import equal_parts, joined_text, shakespeare_works
    from esnlm.text.tokenizers import Tokenizer

    models = set(options.models)
    check_needs(
        options,
        ("parameters", not options.units, "--units to be left out"),
        ("orders", "kneser-ney" in models, "--models kneser-ney"),
        ("parameters units passes alpha", models & {*MODELS[2:]}, "a reservoir among --models"),
        ("spectral_radius input_scaling degree leak_rate seed", models & {*MODELS[4:]},
         "--models carried, gated or direct"),
        ("direct", "direct" in models, "--models direct"),
    )  # fmt: skip
    networks = network_rows(options.networks) if options.networks else None
    parts = equal_parts(shakespeare_works(texts), PARTS)
    train = joined_text(work for part in parts[:-1] for work in part)
    vocabulary = len(Tokenizer.train_characters([train]))
    files = [options.out / name for name in ("shakespeare.csv", "works.csv", "shakespeare.png")]
    samples = options.out / "samples"
    works = [
        {
            "title": work.title,
            "part": "test" if number == PARTS else number,
            "characters": len(work.modern),
            "characters_folio": len(work.folio) or None,
        }
        for number, part in enumerate(parts, start=1)
        for work in part
    ]
    # Workers on other machines see the folder of results.
    place = options.out if options.cluster else None
    with results_folder(options.out), tempfile.TemporaryDirectory(dir=place) as folder:
        samples.mkdir(exist_ok=True)
        write_rows(files[1], list(works[0]), works)
        shared = {"train": f"{folder}/train.txt", "test": f"{folder}/test.txt"}
        test = joined_text(parts[-1])
        for path, text in zip(shared.values(), (train, test), strict=True):
            Path(path).write_text(text, encoding="utf-8")

        def places(setting: Row) -> Row:
            name = f"{setting['model'].replace(', ', '-').replace(' ', '-')}-{setting['size']}"
            sample, running = samples / f"{name}.txt", options.out / "running" / name
            own = {"checkpoints": str(running), "sample": str(sample)}
            return shared | own | {"characters": options.characters}

        rows = run_grid_apart(
            study(options, vocabulary),
            "esnlm.studies.shakespeare.run",
            files[0],
            key=_KEY,
            columns=COLUMNS,
            extras=places,
            fixed={
                "n_train_characters": len(train),
                "n_test_characters": len(test),
                "generated_characters": options.characters,
            },
            cluster=options.cluster,
        )
    for row in rows:
        loss = "" if row["cross_entropy"] is None else f"{row['cross_entropy']:.4f} nats"
        print(f"{row['model']:15} {row['size']:6}  {loss:11}  7-grams {row['overlap_7_train']:.3f}")
    save(study_figure(read_rows(files[0]), networks), files[2])
    finish(*files)
    return 0


def study(options: ShakespeareOptions, vocabulary: int) -> list[Row]:
    """Return the runs of the options, for a vocabulary of this number of characters."""
    sizes = options.units or [round(count / vocabulary) - 1 for count in options.parameters]
    readout = {"alpha": options.alpha, "n_passes": options.passes}
    scales = "degree", "spectral_radius", "input_scaling"
    ours = {"topology": "offsets"} | {name: getattr(options, name) for name in scales}
    if options.leak_rate is not None:
        ours["leak_rate"] = options.leak_rate
    if options.seed:
        ours["random_state"] = options.seed
    reservoirs = {"windows, dense": {}, "windows": {"degree": _SPARSE_DEGREE}}
    others = {"real text": [options.characters], "kneser-ney": options.orders}
    rows: list[Row] = []
    for model in options.models:
        parts: dict[str, Any] = {}
        if model not in others:
            n_direct = {"n_direct": options.direct} if model == "direct" else {}
            parts = {"reservoir": reservoirs.get(model, ours), "readout": readout | n_direct}
        shared = {"model": model, "settings": json.dumps(parts)}
        rows += [shared | {"size": size} for size in others.get(model, sizes)]
    return rows
