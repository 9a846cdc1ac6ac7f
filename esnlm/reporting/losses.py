"""Sections on losses: of texts, along training, by group of tokens, and calibration."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from esnlm.evaluation.calibration import ReliabilityBin
from esnlm.evaluation.measures import COLUMNS
from esnlm.reporting import plots
from esnlm.reporting.contents import Contents, Rows, showing
from esnlm.reporting.page import Block, Section, Text, six_digits, table
from esnlm.reporting.scoring import NGRAMS, UNIGRAMS, ModelScores
from esnlm.studies.controls.settings import CONTROLS
from esnlm.training.baselines import ORDER

_GROUPINGS = {
    "frequency": "occurrences of the token in the training text",
    "position": "position in the sentence",
    "seen n-gram": "longest n-gram of the training text that ends at the token",
}
_EVALUATED = (
    "model", "text", "nll_per_token", "perplexity", "nll_per_word", "bits_per_character",
    "unknown_share", "n_tokens", "n_words", "n_characters", "weight",
)  # fmt: skip
_UNKNOWN = {"unknown_share": "%"}
_VALUE = "value", "lower", "upper"


def texts(contents: Contents, scored: Sequence[ModelScores]) -> Section:
    """Losses of whole texts: rows of `esnlm evaluate`, and what this report scored."""
    section = Section("texts", "Loss of whole texts")
    for each in scored:
        rows = [{name: six_digits(row[name]) for name in COLUMNS} for row in each.rows]
        caption = "Scored for this report, on --held-out"
        section.add(caption, rows, *_EVALUATED, kinds=_UNKNOWN, share=True)
        caption = "Beside baselines of --train, with the interval over sentences"
        names = "model", "n_tokens", "nats", "lower", "upper"
        section.add(caption, each.losses("all"), *names, share=True)
    for file in contents.of("evaluation"):
        with showing(file):
            section.blocks.append(table(file.name, file.records(), _EVALUATED, kinds=_UNKNOWN))
    return section


def training(contents: Contents, scored: Sequence[ModelScores]) -> Section:
    """Held-out loss against tokens and seconds, with the n-gram's line where it is known."""
    section = Section("training", "Loss along training")
    files = contents.of("training")
    logs = {rows.name: rows.numbers("tokens", "seconds", "held_out_nll") for rows in files}
    logs = {name: log for name, log in logs.items() if log["held_out_nll"].notna().any()}
    if not logs:
        return section
    levels = _levels(contents, scored)
    lines = {name: value for name, value in levels.items() if not name.startswith(UNIGRAMS)}
    for column, label in (("tokens", "tokens learned"), ("seconds", "seconds of training")):
        figure = plots.curve(logs, lines, column, label)
        section.blocks.append(plots.plot(figure, f"Held-out loss by {label}"))
    line = ", ".join(f"{name} {value:.4f}" for name, value in levels.items())
    section.blocks.append(
        Text(f"Baselines on the part of the held-out text that such logs score: {line}.")
        if levels
        else Text("The n-gram's line needs --held-out and --train, or the record of the run.")
    )
    for file in files:
        columns, unfolds = [*map(str, file.table)], len(file.table) > 12
        with showing(file):
            rows = table(
                file.name, file.records(), columns, kinds={"share": "%"}, share=True,
                unfolds=unfolds,
            )  # fmt: skip
        section.blocks.append(rows)
    return section


def _levels(contents: Contents, scored: Sequence[ModelScores]) -> dict[str, float]:
    """Losses of baselines by the records of runs, else on what such logs score of --held-out."""
    levels: dict[str, float] = {}
    for kind in (f"{ORDER}-grams", UNIGRAMS):
        losses = {name: r.get("held_out", {}).get(kind) for name, r in contents.records.items()}
        losses = {name: loss for name, loss in losses.items() if loss is not None}
        if len(set(losses.values())) == 1:
            levels[kind] = next(iter(losses.values()))
        else:
            levels |= {f"{kind}, {name}": loss for name, loss in losses.items()}
    return levels or next((each.logged for each in scored if each.logged), {})


def groups(contents: Contents, scored: Sequence[ModelScores]) -> Section:
    """Losses by frequency, position and seen n-gram, and the bins of `esnlm evaluate --bins`."""
    section = Section("groups", "Loss by frequency, position and seen n-gram")
    for each in scored:
        for kind, label in _GROUPINGS.items():
            if not (rows := list(each.losses(kind))):
                continue
            label = label.replace("sentence", each.sequence)
            caption = f"Loss by {label}, with 95 % intervals over sentences"
            section.blocks.append(plots.plot(plots.by_group(rows, label), caption))
            names = "model", "group", "n_tokens", "nats", "lower", "upper"
            section.add(f"Loss by {label}", rows, *names, unfolds=True)
    for file in contents.of("bins"):
        rows = [row | {"occurrences in training": row["bin"]} for row in file.records()]
        names = "model", "occurrences in training", "n_tokens", "perplexity", "lower", "upper"
        kinds = {"occurrences in training": "text"}
        with showing(file):
            section.blocks.append(
                table(f"{file.name}: perplexity by frequency", rows, names, kinds=kinds)
            )
    return section


def calibrations(scored: Sequence[ModelScores]) -> Section:
    """Whether probabilities come true: of the most probable token, and of all tokens."""
    section = Section("calibration", "Calibration")
    by_model = {name: each for group in scored for name, each in group.calibrations.items()}
    if not by_model:
        return section
    shares = "expected calibration error", "most probable token is right", "its mean probability"
    rows = [
        {"model": name, "tokens looked at": each.n_tokens}
        | dict(zip(shares, map(six_digits, each[1:4]), strict=True))
        for name, each in by_model.items()
    ]
    caption = "Most probable token, in 15 bins of equal width"
    section.add(caption, rows, kinds=dict.fromkeys(shares, "%"))
    best = {name: each.most_probable for name, each in by_model.items()}
    every = {name: each.all_words for name, each in by_model.items()}
    of_best = _reliability("the most probable token", best)
    of_every = _reliability("every token of the vocabulary", every, logarithmic=True)
    section.blocks += [block for pair in zip(of_best, of_every, strict=True) for block in pair]
    return section


def _reliability(
    what: str, bins: Mapping[str, Sequence[ReliabilityBin]], *, logarithmic: bool = False
) -> Iterator[Block]:
    """Plot and table of what came against the probability that was given."""
    caption = f"Reliability of {what}: below the diagonal the model is too sure"
    heads = "above", "up to", "predictions", "mean probability", "share that came"
    rows = [
        {"model": model} | dict(zip(heads, map(six_digits, each), strict=True))
        for model, several in bins.items()
        for each in several
        if each.n
    ]
    yield plots.plot(plots.reliability(bins, logarithmic=logarithmic), caption)
    yield table(f"Reliability of {what}", rows, unfolds=True)


def contributions(contents: Contents, scored: Sequence[ModelScores]) -> Section:
    """Return controls of `esnlm controls`, and models beside n-grams and with them."""
    section = Section("contributions", "What each part adds")
    for file in contents.of("values of controls"):
        with showing(file):
            _add_values(section, file)
    for file in contents.of("differences of controls"):
        with showing(file):
            _add_differences(section, file)
    for each in scored:
        if each.weights:
            _add_ngrams(section, each)
    return section


def _add_values(section: Section, file: Rows) -> None:
    """Add what the controls are, and tables of their losses and accuracies."""
    whole = file.table.query("by == 'all'")
    present = [name for name in CONTROLS if name in set(whole["control"])]
    controls = [f"{name}: {CONTROLS[name].says}" for name in present]
    section.blocks.append(Text("The controls:", controls))
    lefts = {name: CONTROLS[name].inputs for name in present}
    whole = whole.assign(**{"what is left": whole["control"].map(lefts)})
    names = ("control", "what is left", "topology", "n_units", "seed", "n", *_VALUE)
    for measure, label, kind in (("nats", "nats a token", ""), ("accuracy", "BLiMP", "%")):
        rows = whole[whole["measure"] == measure].to_dict("records")
        kinds = dict.fromkeys(_VALUE, kind)
        section.add(f"{file.name}: {label}", rows, *names, kinds=kinds)


def _add_differences(section: Section, file: Rows) -> None:
    """Add a plot and a table of what each control loses."""
    from esnlm.studies.controls.plots import figure

    caption = f"{file.name}: what each control loses, with 95 % intervals"
    section.blocks.append(plots.plot(figure(file.typed()), caption))
    less = file.table.query("by == 'all'").rename(columns={"against": "less"})
    columns = "control", "less", "measure", "topology", "seed", "difference", "lower", "upper"
    section.add(f"{file.name}: paired differences", less.to_dict("records"), *columns)


def _add_ngrams(section: Section, each: ModelScores) -> None:
    """Add a table of the models' losses, alone and averaged with n-grams."""
    share = "share of the model in the mean"
    rows: list[dict[str, Any]] = []
    for row in each.losses("all"):
        model = row["model"].removesuffix(" + n-gram")
        weights = each.weights.get(model, ()) if model != row["model"] else ()
        rows.append(row | {share: " and ".join(f"{weight:.3f}" for weight in weights)})
    caption = f"Alone, and as a mean with the {NGRAMS} of --train, on --held-out"
    section.add(caption, rows, "model", "nats", "lower", "upper", share, kinds={share: "text"})
    section.blocks.append(
        Text(
            "Two shares: each half of the held-out sentences, odd and even ones, is scored with the"
            " share that is the likeliest on the other half."
        )
    )
