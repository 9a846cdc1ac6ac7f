"""What the grids of experiments share: sizes, names, reservoirs, the folder of results."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.options.values import integer
from esnlm.storage.atomic import locked

Sizes = tuple[Annotated[int, integer("N", 1)], ...]


def names(choices: tuple[str, ...]) -> Parameter:
    """Return some of these names."""
    return Parameter(metavar="NAME", choices=choices)


def offsets(options: Any) -> dict[str, Any]:
    """Parameters of a reservoir of cyclic offsets, of the degree and scales of the options."""
    names = "degree", "spectral_radius", "input_scaling"
    return {"topology": "offsets"} | {name: getattr(options, name) for name in names}


@contextmanager
def results_folder(folder: Path, again: str = "the same command") -> Iterator[None]:
    """Make and hold a folder, and see that files can be made in it, before hours are spent.

    After an error, what was made and is empty is removed; an interrupt says what is kept, and what
    continues ``again``.
    """
    with locked(folder):
        try:
            _make_writable(folder)
            yield
        except BaseException as error:
            with suppress(OSError):  # it holds results
                folder.rmdir()
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(
                    f"interrupted: finished rows are kept in {folder}, {again} continues"
                ) from None
            raise


def _make_writable(folder: Path) -> None:
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"cannot write to --out {folder}: {error.strerror}; name a folder that can be written"
        ) from None
