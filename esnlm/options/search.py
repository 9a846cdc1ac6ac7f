"""Options of ``esnlm search``."""

from typing import Annotated, Literal

from cyclopts import Parameter

from esnlm.options.common import Folder, group
from esnlm.options.corpus import CorpusOptions
from esnlm.options.values import Cluster, Minutes, Seed, integer


@group()
class SearchOptions:
    """Options of ``esnlm search``."""

    out: Folder
    """Folder of trials.csv, best.toml, importance.csv, importance.png and the journal."""
    task: Literal["text", "elman"] = "text"
    """elman: sentences of Elman's grammar in the place of a text."""
    held_out: Annotated[tuple[str, ...], Parameter(metavar="SHARE|SHARDS|TEXT")] = ("0.1",)
    """Share of the training text, or a text, that trials are judged by."""
    trials: Annotated[int, integer("N", 1)] = 50
    """Trials in all, those of a search that is resumed among them."""
    minutes: Minutes | None = None
    """Begin no round of trials after so long (default: any time)."""
    cluster: Cluster = None
    at_once: Annotated[int | None, integer("K", 1)] = None
    """Trials of a round, which are chosen and judged by the trials before the round: what is found
    depends on K, not on who runs them (default: the threads of the cluster, without one 1; with
    --resume as before)."""
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    """How settings are chosen: by a model of the trials so far, at random, or all in turn."""
    pruner: Literal["median", "halving", "none"] = "median"
    """Stop trials that are worse than half of the others after an eighth, a quarter or half of the
    text."""
    seed: Seed = 0
    """Seed of the trials and of every model: the same seed, the same trials."""
    test: Annotated[tuple[str, ...], Parameter(metavar="SHARDS|TEXT")] = ()
    """Text that no choice sees: at the end the best settings and the defaults are trained with
    several seeds and scored on it."""
    test_seeds: Annotated[int | None, integer("K", 1)] = None
    """Seeds 0 .. K-1 (default: 3 where there is a test text; with --task elman it is drawn)."""
    resume: bool = False
    """Continue the search in the folder."""
    overwrite: bool = False
    """Replace the search in the folder."""
    corpus: CorpusOptions = CorpusOptions()
