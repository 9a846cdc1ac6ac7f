"""Specialisation of the experts of a mixture (Rachez & Hagiwara, section 4.3)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import entropy

from esnlm.grammars.elman import ElmanGrammar
from esnlm.grammars.elman_rules import END
from esnlm.storage.atomic import write_whole
from esnlm.storage.results import markdown_table
from esnlm.studies.elman.states import Corpora, contexts_of
from esnlm.utils.arrays import Array, Floats


@dataclass(frozen=True)
class ExpertsTable:
    """``experts.csv`` and ``experts.md`` of one mixture, in a folder.

    Shares are measured on the second corpus: the gate's P(z|x) says which contexts go to an
    expert, the responsibilities P(z|x, y) which next words it explains.
    """

    n_units: int
    features: int
    n_experts: int
    folder: Path

    @property
    def title(self) -> str:
        """Return the mixture in words."""
        inputs = f"{self.features} word features" if self.features else "one-hot words"
        return f"{self.n_units} units, {inputs}, {self.n_experts} experts, seed 0, second corpus"

    @property
    def setting(self) -> dict[str, Any]:
        """Return the run of the grid that fits the mixture."""
        units_and_features = {"n_units": self.n_units, "features": self.features}
        return {"readout": "moe", "seed": 0, **units_and_features}

    @property
    def is_written(self) -> bool:
        """Whether the folder has the table of this mixture."""
        page = self.folder / "experts.md"
        return page.exists() and f"\n{self.title}" in page.read_text(encoding="utf-8")

    def write(self, readout: Any, states: Array, corpora: Corpora) -> None:
        """Write both files from a fitted mixture and the states (T, n_units) of the test corpus."""
        grammar = corpora.grammar
        contexts = contexts_of(corpora.test, grammar.vocabulary.index(END))
        gate = np.asarray(readout.gate_proba(states), dtype=np.float64)
        posterior = np.asarray(readout.responsibilities(states, contexts["target"].to_numpy()))
        table = describe_experts(gate, posterior, contexts, grammar)
        explained = gate_information(gate, contexts, grammar)
        rows = table.round(6).to_csv(index=False, lineterminator="\n")
        write_whole(self.folder / "experts.csv", rows)
        write_whole(self.folder / "experts.md", _markdown(self.title, table, explained, contexts))


def describe_experts(
    gate: Floats, posterior: Floats, contexts: pd.DataFrame, grammar: ElmanGrammar
) -> pd.DataFrame:
    """One row an expert, the most used first; gate, posterior (T, K)."""
    words = pd.Index(grammar.vocabulary)
    decided = np.bincount(gate.argmax(axis=1), minlength=gate.shape[1]) / len(gate)
    rows = []
    for expert in np.argsort(-gate.mean(axis=0), kind="stable").tolist():
        weight = gate[:, expert]
        last = _shares(contexts["last"], weight, words)
        by_class = last.groupby(last.index.map(grammar.word_class), sort=False).sum()
        row = {
            "expert": expert,
            "gate_share": float(weight.mean()),
            "decided_share": float(decided[expert]),
            "last_class": by_class.idxmax(),
            "last_class_share": by_class.max(),
            "last_words": _top(last),
        }
        for name in ("position", "length"):
            values, share = contexts[name].to_numpy(), weight / max(float(weight.sum()), 1e-300)
            mean = row[f"{name}_mean"] = float(share @ values)
            row[f"{name}_sd"] = float(np.sqrt(share @ (values - mean) ** 2))
        row["next_words"] = _top(_shares(contexts["target"], posterior[:, expert], words))
        rows.append(row)
    return pd.DataFrame(rows)


def gate_information(
    gate: Floats, contexts: pd.DataFrame, grammar: ElmanGrammar
) -> dict[str, float]:
    """Share (0 to 1) of the gate's choice that each property of the context explains.

    The mutual information of expert and property over the entropy of the expert, where the
    joint distribution is the mean of P(z|x) over positions with each value of the property.
    """
    classes = np.array([grammar.word_class[word] for word in grammar.vocabulary])
    properties: dict[str, Any] = {
        "last word": contexts["last"],
        "class of the last word": classes[contexts["last"]],
        "position in the sentence": contexts["position"],
        "length of the sentence": contexts["length"],
        "class of the next word": classes[contexts["target"]],
    }
    shares = {}
    for name, values in properties.items():
        joint = pd.DataFrame(gate).groupby(np.asarray(values)).sum().to_numpy()
        whole, of_both = float(entropy(joint.sum(axis=0))), entropy(joint.ravel())
        information = whole + float(entropy(joint.sum(axis=1)) - of_both)
        shares[name] = information / whole if whole > 0 else 0.0
    return shares


def _shares(values: Any, weight: Floats, words: pd.Index) -> "pd.Series[float]":
    counts = np.bincount(values, weights=weight, minlength=len(words))
    return pd.Series(counts / max(float(counts.sum()), 1e-300), index=words)


def _top(shares: "pd.Series[float]") -> str:
    """Largest shares, in per cent: ``boys 31, girls 20``."""
    largest = shares[shares >= 0.005].nlargest(4)
    return ", ".join(f"{word} {100 * share:.0f}" for word, share in largest.items())


def _markdown(
    title: str, table: pd.DataFrame, explained: dict[str, float], contexts: pd.DataFrame
) -> str:
    """Return a Markdown page: a table of experts, and what the gate knows of the context."""
    rows = [
        {
            "expert": row["expert"],
            "gate": f"{100 * row['gate_share']:.1f} ({100 * row['decided_share']:.1f})",
            "after": f"{row['last_class']} {100 * row['last_class_share']:.0f}",
            "words": row["last_words"],
            "position": f"{row['position_mean']:.1f} ± {row['position_sd']:.1f}",
            "length": f"{row['length_mean']:.1f} ± {row['length_sd']:.1f}",
            "explains": row["next_words"],
        }
        for row in table.to_dict("records")
    ]
    properties = ([name, f"{100 * share:.0f} %"] for name, share in explained.items())
    means = (
        f"{name} {contexts[name].mean():.1f} ± {contexts[name].std(ddof=0):.1f}"
        for name in ("position", "length")
    )
    lines = [
        "# What each expert specialises in",
        "",
        f"{title}. Shares in per cent. *Gate*: mean P(z|x), and how often the expert has the "
        "largest. *After*: the classes and words just read where the gate chooses it. *Position*: "
        "words of the sentence read so far. *Length*: words of the sentence. *Explains*: next "
        "words by responsibility P(z|x, y).",
        "",
        *markdown_table(rows[0], (row.values() for row in rows)),
        "",
        f"All positions: {', '.join(means)}.",
        "",
        "What the gate knows: mutual information between the expert and a property of the "
        "context, as a share of the entropy of the expert.",
        "",
        *markdown_table(["property", "share"], properties),
        "",
    ]
    return "\n".join(lines)
