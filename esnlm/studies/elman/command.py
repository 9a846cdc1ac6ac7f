"""``esnlm elman``: reservoir sizes x readouts x word features x seeds on Elman's grammar.

Two corpora of 5 500 sentences; settings that were found on held-out sentences of the first, or
those of Rachez & Hagiwara, section 4 (``--preset rachez2012``).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.options.common import Folder, Sizes, finish, group, names, results_folder, set_options
from esnlm.options.needs import check_needs
from esnlm.options.values import Cluster, LeakRate, integer, not_negative, positive, real
from esnlm.runs.grid import Row, run_grid
from esnlm.studies.elman import READOUTS
from esnlm.studies.elman.assignments import ASSIGNMENTS
from esnlm.studies.elman.presets import FEATURES, PRESETS, Settings, preset
from esnlm.utils.memory import check_memory

NGRAM_ORDERS = (1, 2, 3, 4, 5)

_KEY = ("readout", "features", "n_units", "seed")
_CORPORA = ("train_sentences", "test_sentences", "grammar", "version")
_SCORES = (
    "perplexity", "cosine", "oracle_perplexity", "n_train_tokens", "n_test_tokens", "n_parameters",
)  # fmt: skip
_SETTINGS = tuple(field.name for field in fields(Settings))
COLUMNS = (
    *_KEY, *_SCORES, "fit_seconds", "score_seconds", "drive_seconds", "alpha", "train_perplexity",
    "train_cosine", "train_oracle_perplexity", "preset", *_SETTINGS, "version",
)  # fmt: skip
NGRAM_COLUMNS = ("order", "seed", *_SCORES, *_CORPORA)
# Slowest readout first: only the order of starting depends on it.
_PACE = ("moe", "mlp", "factored", "softmax", "ridge")


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
        values = set_options(self)
        if values.pop("no_gaps", False):
            values["gaps"] = False
        if self.noun_phrase is not None:
            names = ("proper", "noun", "relative")
            values["noun_phrase"] = dict(zip(names, self.noun_phrase, strict=True))
        if values.pop("lengths", ()):
            values["length_quotas"] = _quotas(self.lengths)
        return json.dumps(values, sort_keys=True)


@group()
class ElmanOptions:
    """Options of ``esnlm elman``."""

    out: Folder = Path("elman")
    """Folder of the CSVs and plots."""
    preset: Literal[tuple(PRESETS)] = "found"  # type: ignore[valid-type]
    """Settings that are not given: found on training text, or those of a paper."""
    sizes: Sizes = (10, 25, 50, 100, 200)
    """Reservoir sizes."""
    readouts: Annotated[tuple[str, ...], names(READOUTS)] = READOUTS
    """Readouts of the grid."""
    features: tuple[Annotated[int, integer("F", 0)], ...] = ()
    """Dimensions of the word features; 0 drives the reservoir with one-hot words (default: 0 6; of
    rachez2012 0 2 5)."""
    seeds: Annotated[int, integer("K", 1)] = 3
    """Run seeds 0 .. K-1."""
    experts: Annotated[int, integer("K", 1)] = 10
    """Experts of the mixture, and of the supervised one (factored)."""
    assignment: Literal[ASSIGNMENTS] = "clusters"  # type: ignore[valid-type]
    """What assigns words to the experts of the supervised mixture: clusters of words by their
    features (by mean states where there are none), bins of frequency, the position in the
    sentence, or its length."""
    spectral_radius: Annotated[float | None, not_negative("R")] = None
    """Spectral radius of the recurrent weights; 0: units apart (default: the preset's)."""
    input_scaling: Annotated[float | None, positive("S")] = None
    """Standard deviation of the input weights (default: the preset's)."""
    degree: Annotated[int, integer("D", 1)] = 32
    """Mean recurrent in-degree of a unit."""
    leak_rate: LeakRate = None
    """Leak rate A, uniform:LOW:HIGH or inverse_gamma:ALPHA (default: the preset's)."""
    reset: Literal["sentence", "never"] | None = None
    """Where the state is reset (default: the preset's)."""
    word_features: Literal["spectral", "gradient"] | None = None
    """Word features in closed form, or learned by gradient (default: the preset's)."""
    jobs: Annotated[int | None, integer("N", 1)] = None
    """Processes (default: the available cores)."""
    cluster: Cluster = None
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
    from esnlm.studies.elman.states import make_grammar, make_reservoir

    check_needs(options, ("jobs", options.cluster is None, "--cluster to be left out"))
    values = {name: getattr(options, name, None) for name in _SETTINGS}
    values["grammar"] = options.grammar.as_json()
    settings = preset(options.preset, **{k: v for k, v in values.items() if v is not None})
    options = replace(options, features=options.features or FEATURES[options.preset])
    n_words, most = len(make_grammar(settings.grammar).vocabulary), max(options.features)
    if settings.word_features == "spectral" and most > n_words:
        raise ValueError(
            f"--features must be at most the {n_words} words of the grammar where they are"
            f" spectral, got {most}"
        )
    make_reservoir(settings, 1, 0).fit(n_inputs=1)  # refuses what it cannot be
    largest = max(options.sizes)  # every readout has two Gram matrices
    check_memory(f"a readout of {largest} units", 16 * largest**2, "lower --sizes")
    with results_folder(options.out):
        rows, ngrams = run_experiment(settings, options)
        if not options.no_plots:
            from esnlm.plots.figures import save
            from esnlm.studies.elman.plots import perplexity_figure, plot_cosine, plot_states
            from esnlm.studies.elman.tables import write_summary

            n_units, features = _illustrated(options)
            save(perplexity_figure(rows, ngrams), options.out / "elman.png")
            plot_cosine(rows, ngrams, options.out / "elman_cosine.png")
            plot_states(settings, n_units, features or 2, options.out / "elman_states.png")
            write_summary(rows, ngrams, options.out / "summary.md")
    print(f"{len(rows)} runs in {options.out / 'elman.csv'}")
    print(_best(rows))
    kinds = ("*.csv",) if options.no_plots else ("*.csv", "*.png", "summary.md")
    finish(*(path for kind in kinds for path in sorted(options.out.glob(kind))))
    return 0


def _illustrated(options: ElmanOptions) -> tuple[int, int]:
    """Units and features of the pictures of states and the table of experts.

    The fewest features, where there are any: the paper has two.
    """
    n_units = min(options.sizes, key=lambda size: abs(size - 100))
    return n_units, min(filter(None, options.features), default=0)


def _best(rows: Sequence[Row]) -> str:
    """Return the setting that is nearest to the oracle, by means over seeds, in words."""
    import pandas as pd

    table: Any = pd.DataFrame(rows).astype({"perplexity": float, "oracle_perplexity": float})
    table["ratio"] = table["perplexity"] / table["oracle_perplexity"]
    means = table.groupby(["readout", "features", "n_units"])[["perplexity", "ratio"]].mean()
    readout, features, n_units = means["ratio"].idxmin()
    perplexity, ratio = means.loc[(readout, features, n_units)]
    inputs = f"{features} word features" if features else "one-hot words"
    return (
        f"best: {readout} on {n_units} units driven by {inputs}: perplexity {perplexity:.4g},"
        f" {ratio:.3f} times the oracle's"
    )


def run_experiment(settings: Settings, options: ElmanOptions) -> tuple[list[Row], list[Row]]:
    """Rows of ``elman.csv`` and of ``ngrams.csv``."""
    from esnlm.studies.elman.experts import ExpertsTable
    from esnlm.studies.elman.run import run_ngram, run_readout, version

    def cost(setting: Row) -> tuple[Any, ...]:
        """Large reservoirs first, and readouts on the same states one after the other."""
        same_states = setting["n_units"], setting["features"], setting["seed"]
        return (*same_states, -_PACE.index(setting["readout"]))

    shared = asdict(settings) | {"preset": options.preset, "version": version()}
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
    experts = None
    if "moe" in options.readouts and not options.no_plots:
        experts = ExpertsTable(*_illustrated(options), settings.experts, options.out)
    grid = product(*map(dict.fromkeys, (options.readouts, options.features, options.sizes)), seeds)
    rows = run_grid(
        [dict(zip(_KEY, values, strict=True)) for values in grid],
        partial(run_readout, settings, experts=experts),
        options.out / "elman.csv",
        key=_KEY,
        columns=COLUMNS,
        fixed=shared,
        cost=cost,
        jobs=options.jobs,
        cluster=options.cluster,
    )
    # The run was resumed, or made on another machine.
    if experts is not None and not experts.is_written:
        run_readout(settings, experts.setting, experts=experts)
    return rows, ngrams


def _quotas(lengths: Sequence[str]) -> dict[str, float] | None:
    """Return weights by sentence length from LENGTH:WEIGHT items, or None for ``free``."""
    if list(lengths) == ["free"]:
        return None
    quotas: dict[str, float] = {}
    for item in lengths:
        length, _, weight = item.partition(":")
        try:
            name, quota = str(int(length)), float(weight)
        except ValueError:
            raise ValueError(
                f"--lengths takes LENGTH:WEIGHT, such as 3:150, or 'free'; got {item!r}"
            ) from None
        if name in quotas:
            raise ValueError(f"--lengths {item}: length {name} has a weight already: name one")
        quotas[name] = quota
    return quotas
