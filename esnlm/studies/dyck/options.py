"""Options of ``esnlm dyck``."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.options.common import Folder, Sizes, group, names
from esnlm.options.values import Cluster, integer, number, positive, read
from esnlm.studies.shards_grid import leak_law

RESERVOIRS = ("esn", "stack")
MODELS = ("baseline", "mts", *RESERVOIRS)
READOUTS = ("ridge", "softmax", "moe", "mlp", "attention")


@group()
class DyckOptions:
    """Options of ``esnlm dyck``; the defaults are the paper's."""

    out: Folder = Path("dyck")
    """Folder of CSV and plot."""
    models: Annotated[tuple[str, ...], names(MODELS)] = MODELS[:3]
    """LSTMs with learned (baseline) and fixed (mts) timescales, and frozen reservoirs: esn, and
    stack, whose closers undo what their openers did, by pairs that training sequences show."""
    readouts: Annotated[tuple[str, ...], names(READOUTS)] = ("ridge",)
    """What reads the states of reservoirs; attention also reads the earlier ones of a sequence, and
    is trained as the LSTMs are."""
    leaks: tuple[Annotated[Any, read(leak_law, "A")], ...] = ()
    """Leak rates of reservoirs: a number in (0, 1], uniform:LOW:HIGH or inverse_gamma:ALPHA
    (default: inverse_gamma with the shape of --alpha)."""
    units: Sizes = (256,)
    """Sizes of the layer."""
    seeds: Annotated[int, integer("K", 1)] = 20
    """Run seeds 0 .. K-1 on the same data."""
    alpha: Annotated[float, positive("A")] = 1.5
    """Shape of the inverse gamma law."""
    passes: Annotated[int, integer("N", 1)] = 2000
    """Most passes over the training sequences."""
    batch_size: Annotated[int, integer("N", 1)] = 32
    """Sequences a step."""
    learning_rate: Annotated[
        float, number("R", "lie in (0, 1e+30]", lambda rate: 0 < rate <= 1e30)
    ] = 1e-4
    """Learning rate of Adam."""
    train: Annotated[int, integer("N", 1)] = 10_000
    """Sequences to train on."""
    validation: Annotated[int, integer("N", 1)] = 2000
    """Sequences that end training."""
    test: Annotated[int, integer("N", 1)] = 5000
    """Sequences to judge on."""
    max_length: Annotated[int, integer("L", 2)] = 200
    """Longest sequence, in brackets."""
    device: Annotated[str, Parameter(metavar="NAME")] = "auto"
    """Device of LSTMs and attention: auto, cpu, cuda, cuda:N."""
    cluster: Cluster = None
    no_plots: bool = False
    """Write the CSV alone."""
