"""The section on what reservoir, direct connections and n-grams each add."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from esnlm.reporting import plots
from esnlm.reporting.found import Found
from esnlm.reporting.losses import numbers
from esnlm.reporting.page import Section, Text, six_digits, table
from esnlm.reporting.scoring import NGRAMS, ModelScores
from esnlm.studies.controls.settings import CONTROLS

_VALUE = {
    "control": "control", "left": "what is left", "topology": "topology", "n_units": "units",
    "seed": "seed", "n": "of", "value": "value", "lower": "95 % from", "upper": "to",
}  # fmt: skip


def section(found: Found, scored: Sequence[ModelScores]) -> Section:
    """Return controls of `esnlm controls`, and models beside n-grams and with them."""
    made = Section("contributions", "What each part adds")
    for rows in found.of("values of controls"):
        _controls(made, numbers(rows, "value", "lower", "upper", "n"), rows.name)
    for rows in found.of("differences of controls"):
        whole = rows.table[rows.table["by"] == "all"]
        columns = {
            "control": "control", "against": "less", "measure": "measure", "topology": "topology",
            "seed": "seed", "difference": "difference", "lower": "95 % from", "upper": "to",
        }  # fmt: skip
        made.blocks.append(
            table(f"{rows.name}: paired differences", whole.to_dict("records"), columns,
                  kinds={"seed": "text"}, share=False)
        )  # fmt: skip
    for each in scored:
        if each.weights:
            _with_ngrams(made, each)
    return made


def _controls(made: Section, values: pd.DataFrame, name: str) -> None:
    """Add a plot and a table of the controls for each measure to the section."""
    whole = values[values["by"] == "all"]
    told = [f"{key}: {control.says}" for key, control in CONTROLS.items()
            if key in set(whole["control"])]  # fmt: skip
    made.blocks.append(Text("The controls:", told))
    for measure, label, kind in (("nats", "nats a token", ""), ("accuracy", "BLiMP", "%")):
        part = whole[whole["measure"] == measure]
        if part.empty:
            continue
        # The mean over seeds, which comes after them, where there are several.
        shown = part.drop_duplicates(["control", "topology", "n_units"], keep="last")
        factor = 100 if kind else 1
        names = [f"{_left(row['control'])} ({row['topology']})" for row in shown.to_dict("records")]
        means, *ends = ([factor * float(value) for value in shown[column]]
                         for column in ("value", "lower", "upper"))  # fmt: skip
        bounds = list(zip(*ends, strict=True))
        figure = plots.dots(names, means, f"{label}{', %' if kind else ''}", bounds)
        caption = f"{name}: {label} of each control, mean over its seeds, with 95 % intervals"
        made.blocks.append(plots.plot(figure, caption))
        rows = part.assign(left=part["control"].map(_left))
        made.blocks.append(
            table(f"{name}: {label}", rows.to_dict("records"), _VALUE,
                  kinds={"seed": "text", **dict.fromkeys(("value", "lower", "upper"), kind)},
                  share=False)
        )  # fmt: skip


def _left(control: str) -> str:
    return CONTROLS[control].left if control in CONTROLS else control


def _with_ngrams(made: Section, each: ModelScores) -> None:
    """Add a table of the models' losses, alone and averaged with n-grams, to the section."""
    rows: list[dict[str, Any]] = []
    for row in each.losses("all"):
        model = row["model"].removesuffix(" + n-gram")
        weights = each.weights.get(model) if model != row["model"] else None
        share = "" if weights is None else " and ".join(f"{weight:.3f}" for weight in weights)
        rows.append({key: six_digits(value) for key, value in row.items()} | {"share": share})
    columns = {
        "model": "model", "nats": "nats a token", "lower": "95 % from", "upper": "to",
        "share": "share of the model in the mean",
    }  # fmt: skip
    caption = f"Alone, and as a mean with the {NGRAMS} of --train, on --held-out"
    kinds = {"model": "text", "share": "text"}
    made.blocks.append(table(caption, rows, columns, kinds=kinds, share=False))
    made.blocks.append(
        Text(
            "Two shares: each half of the held-out sentences, odd and even ones, is scored with the"
            " share that is the likeliest on the other half."
        )
    )
