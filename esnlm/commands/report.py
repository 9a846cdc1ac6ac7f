"""``esnlm report``: one HTML page of models, runs and grids."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from esnlm.options.common import Device, Documents, File, group
from esnlm.options.corpus import split_of
from esnlm.options.needs import check_needs
from esnlm.options.values import file_name, integer
from esnlm.runs.run_record import record_of
from esnlm.storage.results import results

Folders = Annotated[
    tuple[Path, ...],
    Parameter(
        "FOLDER",
        help="Folders of models, of runs with their logs and CSVs, of grids; or such files.",
    ),
]


@group()
class ReportOptions:
    """Options of ``esnlm report``."""

    out: File
    """The page to write, such as report.html."""
    overwrite: bool = False
    """Replace an existing page."""
    title: Annotated[str | None, Parameter(metavar="TEXT")] = None
    """Heading of the page (default: the names of the folders)."""
    held_out: Annotated[tuple[str, ...], Parameter(metavar="SHARDS|TEXT")] = ()
    """Text to score models on: losses by group of tokens, calibration."""
    train: Annotated[tuple[str, ...], Parameter(metavar="SHARDS|TEXT")] = ()
    """Training text: frequencies and n-grams, beside --held-out."""
    blimp: Annotated[Path | None, file_name("FOLDER")] = None
    """Minimal pairs for models to judge."""
    resamples: Annotated[int, integer("R", 1)] = 10_000
    """Resamples of sentences, for the intervals."""
    documents: Documents = None
    device: Device = None


def report(folders: Folders, /, *, options: ReportOptions) -> int:
    """Gather, score where text is given, and write the page; the exit status."""
    if not folders:
        raise ValueError("esnlm report needs a FOLDER: a model, a run or a grid")
    scored = options.held_out or options.blimp
    check_needs(
        options,
        ("train documents", options.held_out, "--held-out TEXT, which is scored"),
        ("resamples", scored, "--held-out TEXT or --blimp FOLDER, which are scored"),
    )
    from esnlm.loading import load_model
    from esnlm.reporting.contents import find
    from esnlm.reporting.report import render_report
    from esnlm.storage.atomic import write_whole
    from esnlm.utils.messages import as_text, log

    contents = find(folders)
    inputs: list[str | Path] = [
        *options.held_out, *options.train, *contents.models.values(), *contents.shards,
        *(record_of(folder) for folder in contents.models.values()),
        *(rows.path for rows in contents.rows), *filter(None, [options.blimp]),
    ]  # fmt: skip
    with results([(options.out, None)], inputs, overwrite=options.overwrite):
        if scored and not contents.models:
            raise ValueError("--held-out and --blimp need a model: no folder holds one")
        models = {}
        for name, folder in contents.models.items():
            log.info(f"reading {name}")
            models[name] = load_model(folder, device=options.device)
        page = render_report(
            options.title
            or ", ".join(dict.fromkeys(as_text(path.name or ".") for path in folders)),
            contents,
            models,
            split_of=lambda model: split_of(model, options.documents),
            held_out=options.held_out,
            train=options.train,
            blimp=options.blimp,
            n_resamples=options.resamples,
        )
        write_whole(options.out, page)
    counts = {"model": len(contents.models), "table": len(contents.rows)}
    parts = ", ".join(f"{n} {name}{'' if n == 1 else 's'}" for name, n in counts.items())
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, of {parts}")
    return 0
