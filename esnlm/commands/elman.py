"""``esnlm elman``: reservoir sizes x readouts x word features x seeds on Elman's grammar.

The setting of Rachez & Hagiwara, section 4: two corpora of 5 500 sentences, each read as one
long sequence, spectral radius 0.97, input scaling 1, no leak, the state never reset.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from esnlm.commands.options.common import Folder, given, group
from esnlm.commands.options.grid import GridOptions, Sizes, names, results_folder
from esnlm.commands.options.values import integer, real
from esnlm.experiments.common.grid import Row, run_grid
from esnlm.experiments.elman import READOUTS
from esnlm.utils.memory import check_memory

if TYPE_CHECKING:
    from esnlm.experiments.elman.run import Settings

NGRAM_ORDERS = (1, 2, 3, 4, 5)

_KEY = ("readout", "features", "n_units", "seed")
_CORPORA = ("train_sentences", "test_sentences", "grammar", "version")
_SCORES = (
    "perplexity", "cosine", "oracle_perplexity", "n_train_tokens", "n_test_tokens", "n_parameters",
)  # fmt: skip
COLUMNS = (
    *_KEY, *_SCORES, "fit_seconds", "score_seconds", "drive_seconds", "alpha", "train_perplexity",
    "train_cosine", "train_oracle_perplexity", "train_sentences", "test_sentences", "experts",
    "spectral_radius", "input_scaling", "degree", "grammar", "version",
)  # fmt: skip
NGRAM_COLUMNS = ("order", "seed", *_SCORES, *_CORPORA)
# Slowest readout first: only the order of starting depends on it.
_PACE = ("moe", "factored", "softmax", "ridge")


@group("Grammar")
class GrammarOptions:
    """Arguments of `esnlm.ElmanGrammar`; what is not given is the paper's."""

    lengths: Annotated[tuple[str, ...], Parameter(metavar="L:W")] = ()
    """Sentence lengths and their weights, such as 3:150 4:350; 'free' keeps the lengths of the
    grammar (default: those of the paper)."""
    min_length: Annotated[int | None, integer("L")] = None
    """Shortest sentence, in words."""
    max_length: Annotated[int | None, integer("L")] = None
    """Longest sentence, in words."""
    plural_probability: Annotated[float | None, Parameter("--plural"), real("P")] = None
    """Probability of a plural noun."""
    object_probability: Annotated[float | None, Parameter("--object"), real("P")] = None
    """Probability of an object where it is optional."""
    noun_phrase: Annotated[
        tuple[float, float, float] | None, Parameter(metavar="PROPER NOUN RELATIVE")
    ] = None
    """Probabilities of a name, a noun, and a noun with a relative clause."""
    no_gaps: bool = False
    """Verbs of object relatives have objects of their own, as their kinds demand."""

    def as_json(self) -> str:
        """Keyword arguments of `ElmanGrammar`."""
        chosen = given(self)
        if chosen.pop("no_gaps", False):
            chosen["gaps"] = False
        if self.noun_phrase is not None:
            names = ("proper", "noun", "relative")
            chosen["noun_phrase"] = dict(zip(names, self.noun_phrase, strict=True))
        if chosen.pop("lengths", ()):
            chosen["length_quotas"] = _quotas(self.lengths)
        return json.dumps(chosen, sort_keys=True)


@group()
class ElmanOptions(GridOptions):
    """Options of ``esnlm elman``."""

    out: Folder = Path("elman")
    sizes: Sizes = (10, 25, 50, 100, 200)
    readouts: Annotated[tuple[str, ...], names(READOUTS)] = READOUTS
    """Readouts of the grid."""
    features: tuple[Annotated[int, integer("F", 0)], ...] = (0, 2, 5)
    """Dimensions of the word features; 0 drives the reservoir with one-hot words."""
    seeds: Annotated[int, integer("K", 1)] = 3
    """Run seeds 0 .. K-1."""
    experts: Annotated[int, integer("K", 1)] = 10
    """Experts of the mixture."""
    jobs: Annotated[int | None, integer("N", 1)] = None
    """Processes (default: the available cores)."""
    # Fewer leave none to choose penalties on.
    train_sentences: Annotated[int, integer("N", 10)] = 5500
    """Sentences to train on."""
    test_sentences: Annotated[int, integer("N", 1)] = 5500
    """Sentences to score."""
    no_plots: bool = False
    """Write the CSVs alone."""
    grammar: GrammarOptions = GrammarOptions()


def elman(*, options: ElmanOptions = ElmanOptions()) -> int:
    """Run the grid, then plot: 0 when all is done, 130 when interrupted (rows are kept)."""
    from esnlm.experiments.elman.run import Settings, make_grammar

    shared = {field.name: getattr(options, field.name) for field in fields(Settings)}
    settings = Settings(**shared | {"grammar": options.grammar.as_json()})
    make_grammar(settings.grammar)
    largest = max(options.sizes)  # every readout has two Gram matrices
    check_memory(f"a readout of {largest} units", 16 * largest**2, "lower --sizes")
    with results_folder(options.out):
        rows, ngrams = run_experiment(settings, options)
        if not options.no_plots:
            from esnlm.experiments.elman.experts import write_experts
            from esnlm.experiments.elman.plots import plot_cosine, plot_perplexity, plot_states
            from esnlm.experiments.elman.tables import write_summary

            n_units = min(options.sizes, key=lambda size: abs(size - 100))
            # The fewest features, where there are any: the paper has two.
            features = min(filter(None, options.features), default=0)
            plot_perplexity(rows, ngrams, options.out / "elman.png")
            plot_cosine(rows, ngrams, options.out / "elman_cosine.png")
            plot_states(settings, n_units, features or 2, options.out / "elman_states.png")
            if "moe" in options.readouts:
                write_experts(settings, n_units, features, options.out)
            write_summary(rows, ngrams, options.out / "summary.md")
    print(f"{len(rows)} runs in {options.out / 'elman.csv'}")
    return 0


def run_experiment(settings: "Settings", options: ElmanOptions) -> tuple[list[Row], list[Row]]:
    """Rows of ``elman.csv`` and of ``ngrams.csv``."""
    from esnlm.experiments.elman.run import run_ngram, run_readout, version

    def cost(setting: Row) -> tuple[Any, ...]:
        """Large reservoirs first, and readouts on the same states one after the other."""
        same_states = setting["n_units"], setting["features"], setting["seed"]
        return (*same_states, -_PACE.index(setting["readout"]))

    shared = asdict(settings) | {"version": version()}
    seeds = range(options.seeds)
    ngrams = run_grid(
        [{"order": order, "seed": seed} for seed in seeds for order in NGRAM_ORDERS],
        partial(run_ngram, settings),
        options.out / "ngrams.csv",
        key=("order", "seed"),
        columns=NGRAM_COLUMNS,
        fixed={name: shared[name] for name in _CORPORA},
        jobs=1,
    )
    grid = product(*map(dict.fromkeys, (options.readouts, options.features, options.sizes)), seeds)
    rows = run_grid(
        [dict(zip(_KEY, values, strict=True)) for values in grid],
        partial(run_readout, settings),
        options.out / "elman.csv",
        key=_KEY,
        columns=COLUMNS,
        fixed=shared,
        cost=cost,
        jobs=options.jobs,
    )
    return rows, ngrams


def _quotas(lengths: Sequence[str]) -> dict[str, float] | None:
    if list(lengths) == ["free"]:
        return None
    quotas = {}
    for item in lengths:
        length, _, weight = item.partition(":")
        try:
            quotas[str(int(length))] = float(weight)
        except ValueError:
            raise ValueError(
                f"--lengths takes LENGTH:WEIGHT, such as 3:150, or 'free'; got {item!r}"
            ) from None
    return quotas
