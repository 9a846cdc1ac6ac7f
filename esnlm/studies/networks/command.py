"""``esnlm compare``: networks trained on one corpus, side by side."""

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.options.common import Folder, Sizes, finish, group, results_folder
from esnlm.options.corpus import Corpus, CorpusOptions, HeldOut
from esnlm.options.needs import check_needs
from esnlm.options.values import Cluster, file_name, integer, nested, pair, separate
from esnlm.runs.grid import Row, read_rows, run_grid_apart
from esnlm.storage.atomic import write_whole
from esnlm.storage.results import write_rows
from esnlm.studies.generation import ORDERS
from esnlm.torch import require_torch
from esnlm.utils.messages import this_command


@group()
class CompareOptions:
    """Options of ``esnlm compare``."""

    corpus: CorpusOptions = CorpusOptions()
    held_out: HeldOut
    """Text to score."""
    validation: Annotated[tuple[str, ...], Parameter(metavar="SHARDS|TEXT")] = ()
    """Text that is scored along training, for --plan patience=K and the plot of losses."""
    blimp: Annotated[Path | None, file_name("FOLDER")] = None
    """Minimal pairs that the networks judge."""
    out: Folder = Path("compare")
    """Folder of the CSVs, the table, the plots, logs of training and samples."""
    models: Annotated[tuple[str, ...], Parameter(metavar="NAME:SETTING=VALUE,...")]
    """Networks, as --model of train has them, in every size of --sizes unless settings decide it:
    lstm laerc:reservoir_gradient=true aerc:n_units=75,n_hidden=13
    esn:reservoir.n_units=1024,rank=64"""
    vary: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUE,...")] = ()
    """Every value of a setting for the networks that have it, and equal values for several names:
    reservoir.n_units=1024,2048 reservoir.degree,reservoir.input_degree=1,32"""
    #: Nearest to Köster & Uchida's five sizes where published settings are.
    sizes: Sizes = (15_000, 30_000, 45_000, 103_000, 155_000)
    """Trained parameters, which settings are chosen for."""
    default_size: bool = False
    """Each network in its own default settings, in the place of --sizes."""
    plan: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUE")] = ()
    """Training of all networks where it is to differ from each one's recipe: n_passes=1
    batch_size=256 learning_rate=1e-3"""
    seeds: Annotated[int, integer("K", 1)] = 1
    """Runs of each, from seeds 0 to K - 1."""
    bins: bool = False
    """Perplexities of words by their frequency in the text, too."""
    generate: Annotated[int | None, integer("N", max(ORDERS))] = None
    """Tokens that each network generates, for the overlap of their n-grams with the texts and for
    times (default: none)."""
    device: Annotated[str, Parameter(metavar="NAME")] = "auto"
    """auto, cpu, cuda or cuda:N."""
    cluster: Cluster = None


def compare(text: Corpus, /, *, options: CompareOptions) -> int:
    """Run what ``compare.csv`` does not hold yet: 0 when all is done, 130 when interrupted."""
    require_torch("esnlm compare")
    import joblib

    from esnlm.plots.figures import save
    from esnlm.studies import minimal_pairs
    from esnlm.studies.networks import compare as study
    from esnlm.studies.networks.plots import curves_figure, figure, power_law_figure
    from esnlm.text.boundaries import joined
    from esnlm.text.source import open_source
    from esnlm.torch.device import chosen_device

    check_needs(options, ("sizes", not options.default_size, "--default-size to be left out"))
    chosen_device(options.device)
    texts = [text, options.held_out, *([options.validation] if options.validation else [])]
    source, *others = map(open_source, texts)
    corpus = options.corpus.with_defaults(source)
    entries = [_entry(model) for model in options.models]
    for setting in options.vary:
        entries = _varied(entries, setting)
    plan = _settings(options.plan, "--plan")
    if plan.get("patience") is not None and not options.validation:
        raise ValueError("--plan patience=K watches the loss of a text: name it with --validation")
    sizes = [] if options.default_size else options.sizes
    files = [options.out / f"compare.{kind}" for kind in ("csv", "md", "png")]
    logs, samples = options.out / "logs", options.out / "samples"
    # Workers on other machines see the folder of results.
    place = options.out if options.cluster else None
    with results_folder(options.out), tempfile.TemporaryDirectory(dir=place) as folder:
        tokenizer = corpus.make_tokenizer(source)
        is_one_text = corpus.reset == "never"
        rows = study.grid(entries, sizes, plan, options.seeds, len(tokenizer), one_text=is_one_text)
        for each in others:
            corpus.check(source, each)
        train, test, *validation = (
            joined(corpus.read(each, tokenizer), tokenizer, corpus.reset, len(tokenizer))
            for each in (source, *others)
        )
        pairs = minimal_pairs.digest(options.blimp)
        shared = {
            "corpus_file": f"{folder}/corpus",
            "reset": corpus.reset,
            "blimp": options.blimp and str(options.blimp),
            "device": options.device,
            "bins": options.bins,
            "generate": options.generate,
        }

        if options.generate:
            samples.mkdir(exist_ok=True)

        def places(row: Row) -> Row:
            name = study.run_name(row)
            own = {"log": logs / f"{name}.csv", "sample": samples / f"{name}.txt"}
            own["checkpoints"] = options.out / "running" / name
            return shared | {key: str(path) for key, path in own.items()}

        streams = train, test, validation[0] if validation else None
        joblib.dump((*streams, tokenizer), shared["corpus_file"])
        rows = run_grid_apart(
            rows,
            "esnlm.studies.networks.run",
            files[0],
            key=study.KEY,
            columns=(
                *study.COLUMNS,
                *(study.BINS if options.bins else ()),
                *(study.GENERATED if options.generate else ()),
            ),
            extras=places,
            cluster=options.cluster,
            provenance={"command": this_command()},
            fixed={
                "corpus": study.digest_of(test, train, *validation),
                "vocabulary": len(tokenizer),
                "pairs": pairs and pairs[:12],
            }
            | ({"generated_tokens": options.generate} if options.generate else {}),
        )
        with suppress(OSError):  # a run has not ended
            (options.out / "running").rmdir()
        # All rows of the file, also those of earlier commands.
        all_rows = read_rows(files[0])
        write_whole(files[1], study.table(all_rows))
        save(figure(all_rows), files[2])
        losses = study.training_losses(all_rows, logs)
        if len(losses):
            files.append(options.out / "curves.png")
            save(curves_figure(losses), files[-1])
        lines = study.quantities(all_rows, losses)
        if laws := study.power_laws(lines):
            files += [options.out / f"power_laws.{kind}" for kind in ("csv", "png")]
            write_rows(files[-2], study.LAW_COLUMNS, laws)
            save(power_law_figure(lines, laws), files[-1])
    for row in rows:
        size = f"{row['n_parameters']} parameters"
        judgement = "" if row["blimp"] is None else f", BLiMP {100 * row['blimp']:.1f} %"
        print(f"{row['model']:12} {size:22} {row['held_out_nll']:.4f} nats a token{judgement}")
    finish(*files)
    return 0


def _entry(text: str) -> tuple[str, dict[str, Any]]:
    """Return name and settings of a network from NAME:SETTINGS; raise ValueError if unknown."""
    from esnlm.torch.networks.registry import network_class

    name, colon, settings = text.partition(":")
    network_class(name)
    values = _settings(separate(settings), f"--models {name}") if colon else {}
    _check_reservoir(values)
    return name, values


def _varied(
    entries: Sequence[tuple[str, dict[str, Any]]], text: str
) -> list[tuple[str, dict[str, Any]]]:
    """Return the entries with each value of NAME,...=VALUE,...; as they are without its names."""
    from esnlm.torch.networks.registry import merged, network_class

    names, _, values = text.partition("=")
    each = separate(names)
    changes = [
        _settings([f"{name}={value}" for name in each], "--vary") for value in separate(values)
    ]
    for change in changes:
        _check_reservoir(change)
    rows = []
    for model, own in entries:
        known = changes[0].keys() <= network_class(model).arguments().keys()
        rows += [(model, merged(own, change)) for change in changes] if known else [(model, own)]
    if rows == list(entries):
        models = ", ".join(model for model, _ in entries)
        raise ValueError(f"--vary {text}: none of the networks {models} has this setting")
    return rows


def _check_reservoir(values: dict[str, Any]) -> None:
    """Raise ValueError for settings of a reservoir that it does not have."""
    from esnlm import Reservoir

    # Networks read every token: a washout would have no effect.
    names = sorted({*Reservoir._get_param_names()} - {"washout"})
    reservoir = values.get("reservoir", {})
    if not isinstance(reservoir, dict):
        raise ValueError(
            f"reservoir is set by its parts, as in reservoir.n_units=9, got {reservoir}"
        )
    for each in reservoir:
        if each not in names:
            raise ValueError(f"{each} is no setting of a reservoir, which has {', '.join(names)}")


def _settings(pairs: Sequence[str], option: str) -> dict[str, Any]:
    try:
        values = [pair(text) for text in pairs]
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    return nested(values, option)
