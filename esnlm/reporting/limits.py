"""What models cannot do, as far as the figures of a report say it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from esnlm.reporting.found import Found
from esnlm.reporting.losses import numbers
from esnlm.reporting.page import Section, Text
from esnlm.reporting.pairs import phenomena
from esnlm.reporting.scoring import NGRAMS, UNIGRAMS, Scored

_CHANCE = 0.5
#: Expected calibration error from which probabilities are not to be taken as they are.
_TOLD_ERROR = 0.05
_MANY_UNKNOWN = 0.02


def section(
    found: Found, scored: Sequence[Scored], pairs: Mapping[str, Sequence[Mapping[Any, Any]]]
) -> Section:
    """Sentences that follow from the figures, and what no figure here says."""
    told = [*_of_losses(scored), *_of_calibration(scored), *_of_pairs(pairs), *_of_seeds(found)]
    made = Section("limits", "What it cannot do")
    if not (found.models or told):
        return made
    if told:
        made.blocks.append(Text("By the figures above:", told))
    made.blocks.append(
        Text(
            "Intervals cover another draw of sentences or of pairs, not another seed or another"
            " text of training. Nothing here was measured on text of another kind than that of"
            " --held-out, and a model of next tokens is no judge of truth."
        )
    )
    return made


def _of_losses(scored: Sequence[Scored]) -> Iterator[str]:
    for each in scored:
        for name in each.models:
            if NGRAMS in each.names:
                yield from _beside(each, name)
            if "position" in {by for by, _ in each.judged.groups}:
                rows = [row for row in each.losses("position") if row["model"] == name]
                worst = max(rows, key=lambda row: row["nats"])
                yield (
                    f"{name} is worst at position {worst['group']} of a {each.sequence}:"
                    f" {worst['nats']:.3f} nats a token."
                )
        for row in each.rows:
            if row["unknown_share"] > _MANY_UNKNOWN:
                yield (
                    f"{row['model']} does not know {100 * row['unknown_share']:.1f} % of the tokens"
                    f" of {row['text']}, which are easy to predict as the unknown token: its loss"
                    " does not compare with that of a whole vocabulary."
                )


def _beside(each: Scored, name: str) -> Iterator[str]:
    """A model beside n-grams and unigrams of the same tokens."""
    loss, ngrams, unigrams = map(each.loss, (name, NGRAMS, UNIGRAMS))
    if loss > unigrams:
        yield f"{name} is worse than the words' frequencies alone, by {loss - unigrams:.3f} nats."
    elif loss > ngrams:
        yield f"{name} is worse than the {NGRAMS}, by {loss - ngrams:.3f} nats a token."
    for by, what in (("frequency", "tokens that occur {} times in the training text"),
                     ("seen n-gram", "tokens of which the training text holds: {}")):  # fmt: skip
        rows: dict[str, dict[str, float]] = {}
        for row in each.losses(by):
            rows.setdefault(row["group"], {})[row["model"]] = row["nats"]
        behind = [group for group, of in rows.items() if of[name] > of[NGRAMS]]
        if behind and loss <= ngrams:
            where = what.format(", ".join(behind))
            yield f"{name} is better than the {NGRAMS} on the whole, and worse on {where}."


def _of_calibration(scored: Sequence[Scored]) -> Iterator[str]:
    for each in scored:
        for name, found in each.calibrations.items():
            if found.error > _TOLD_ERROR:
                sure = "too sure" if found.confidence > found.accuracy else "not sure enough"
                yield (
                    f"{name} is {sure} of its most probable token: {100 * found.confidence:.1f} %"
                    f" given, {100 * found.accuracy:.1f} % right."
                )


def _of_pairs(pairs: Mapping[str, Sequence[Mapping[Any, Any]]]) -> Iterator[str]:
    for name, rows in pairs.items():
        chance, below = [], []
        for row in phenomena(rows):
            what = row["phenomenon"].replace("_", " ")
            if row["phenomenon"] == "overall" or row["lower"] is None:
                continue
            if row["upper"] < _CHANCE:
                below.append(what)
            elif row["lower"] <= _CHANCE:
                chance.append(what)
        for kind, several in (("at", chance), ("below", below)):
            if several:
                yield f"{name} is {kind} chance in these phenomena: {', '.join(several)}."
        ties = sum(row["ties"] for row in phenomena(rows) if row["phenomenon"] == "overall")
        if ties:
            yield f"{name} finds the two sentences of {ties:g} pairs equally probable."


def _of_seeds(found: Found) -> Iterator[str]:
    for rows in found.rows:
        several = rows.kind in ("natural", "elman", "compare", "dyck") and len(rows.table) > 1
        if several and rows.table["seed"].nunique() == 1:
            yield f"The rows of {rows.name} are of one seed: differences may be its luck."
    for rows in found.of("evaluation"):
        table = numbers(rows, "nll_per_token")
        for text, part in table.groupby("text", sort=False):
            best = part["model"].iloc[int(part["nll_per_token"].argmin())]
            if len(part) > 1:
                yield f"On {text} the lowest loss in {rows.name} is that of {best}."
