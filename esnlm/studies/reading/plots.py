"""The figure of a study of reading times."""

from pathlib import Path

import numpy as np
import pandas as pd

from esnlm.plots.figures import panels, save, style


def plot_gains(gains: pd.DataFrame, path: Path) -> None:
    """Draw the gain of each model on texts left out, with and without marks, and its error."""
    figure, (axis,) = panels(1, size=(7.0, 2.2 + 0.5 * gains["model"].nunique()))
    names = gains["model"].unique().tolist()
    groups = gains.groupby(["measure", "controls"], sort=False)
    for number, ((measure, controls), part) in enumerate(groups):
        marks = "without marks" if str(measure).endswith("without_marks") else "with marks"
        label = f"{marks}, marks {'in the baseline' if controls else 'not in the baseline'}"
        rows = part.set_index("model").reindex(names)
        places = np.arange(len(names)) + 0.14 * (number - (groups.ngroups - 1) / 2)
        axis.errorbar(
            rows["gain"], places, xerr=rows["standard_error"], label=label, linestyle="none",
            **style(number),
        )  # fmt: skip
    axis.axvline(0, color="#999999", linewidth=1)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel("gain in log-likelihood on texts left out (nats a word), standard error")
    save(figure, path, legend_of=axis)
