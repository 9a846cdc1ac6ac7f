"""What the commands of the experiments share: options of a grid, their checks, its folder."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def add_grid(
    parser: argparse.ArgumentParser, *, folder: str, sizes: Sequence[int], degree: int
) -> None:
    """Declare the folder of a grid, its reservoir sizes and what its reservoirs share."""
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        default=Path(folder),
        metavar="DIR",
        help=f"folder of the CSVs and plots (default: {folder})",
    )
    add("--sizes", type=int, nargs="+", default=list(sizes), metavar="N", help="reservoir sizes")
    add("--spectral-radius", type=float, default=0.97, metavar="R")
    add("--input-scaling", type=float, default=1.0, metavar="S")
    add(
        "--degree",
        type=int,
        default=degree,
        metavar="D",
        help=f"mean recurrent in-degree of a unit (default: {degree})",
    )


def check_grid(args: argparse.Namespace) -> None:
    """Raise ValueError unless the options of `add_grid` make reservoirs."""
    check_least("--sizes", args.sizes, 1)
    check_least("--degree", [args.degree], 1)
    for option, value in (
        ("--spectral-radius", args.spectral_radius),
        ("--input-scaling", args.input_scaling),
    ):
        if not 0 < value < float("inf"):
            raise ValueError(f"{option} must be positive and finite, got {value}")


def check_least(option: str, values: Iterable[int], least: int) -> None:
    """Raise ValueError where a value is below the least.

    >>> check_least("--jobs", [2], 1)
    """
    for value in values:
        if value < least:
            raise ValueError(f"{option} must be at least {least}, got {value}")


def prepare_folder(folder: Path) -> None:
    """Make the folder and see that files can be made in it, before hours are spent."""
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"cannot write to --out {folder}: {error.strerror}; name a folder that can be written"
        ) from None


@contextmanager
def prepared_folder(folder: Path) -> Iterator[None]:
    """`prepare_folder`; where the block is left by an error, what it made and is empty is gone."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        prepare_folder(folder)
        yield
    except BaseException:
        for path in made:
            with suppress(OSError):  # it holds results
                path.rmdir()
        raise


def interrupted(folder: Path) -> int:
    """Say what is kept; the exit status of a process that an interrupt ended."""
    message = f"interrupted: finished rows are kept in {folder}, the same command goes on"
    print(message, file=sys.stderr)
    return 130
