"""The CSV of surprisals: rows of a unit, with keys of the stimuli beside."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from esnlm.models.surprisal import ScoredText, surprisal_columns, surprisal_rows
from esnlm.text.corpus import CorpusError
from esnlm.text.stimuli import PLACES, Stimuli


@dataclass
class SurprisalTable:
    """Layout of a CSV of surprisals.

    ``stimuli``: tables by path, all with the same other columns. Raises ValueError where a column
    of the stimuli has the name of one of the measures.
    """

    unit: str
    lags: int = 0
    stimuli: Mapping[str, Stimuli] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set ``columns``, and refuse two of one name."""
        own = ["model", *surprisal_columns(self.unit, self.lags)]
        if "string" not in own:  # the text of a row, whatever the unit
            own.insert(own.index("word") + 1, "string")
        others = {stimuli.columns for stimuli in self.stimuli.values()} or {()}
        if len(others) > 1:
            raise ValueError(
                "tables that are written to one CSV must have the same columns, got "
                + " and ".join(",".join(columns) for columns in sorted(others))
            )
        (keys,) = others
        clash = [name for name in keys if name in own and name not in PLACES]
        if clash:
            raise ValueError(
                f"the column {clash[0]} of the stimuli has the name of a column of the result:"
                " rename it in the file"
            )
        self.columns = (*(name for name in own if name not in keys), *keys)

    def rows(
        self, path: str, part: ScoredText, model: Any, name: str, counts: Any = None
    ) -> Iterator[list[Any]]:
        """Yield the rows of a part of a text under a model; missing values are empty.

        Of stimuli that are words, ends of sentences have no row. Raises CorpusError where the model
        has read other words than theirs.
        """
        stimuli = self.stimuli.get(path)
        document, n_words, words = None, 0, list[str]()
        for row in surprisal_rows(part, model, self.unit, path, counts=counts, lags=self.lags):
            if document != row["document"]:
                document, n_words = row["document"], 0
                words = stimuli.texts[document - 1].split() if stimuli is not None else []
            is_word = self.unit == "word" and row["length"] == row["length"]
            if stimuli is not None:
                if stimuli.by_word and not is_word:
                    continue
                if stimuli.by_word and words[n_words : n_words + 1] != [row["word"]]:
                    raise CorpusError(
                        f"{path}: the model reads {row['word']!r} as word {n_words + 1} of"
                        f" {' '.join(words)!r:.80}: leave out the rows of marks such as <s> and"
                        " </s>"
                    )
                row |= stimuli.keys_of(row["document"] - 1, n_words)
            n_words += is_word
            row |= {"model": name, "string": row.get("string", row.get("word"))}
            yield [_written(row[column]) for column in self.columns]


def _written(value: Any) -> Any:
    """Return a value of a CSV: nothing for NaN, 0 or 1 for a mark."""
    if isinstance(value, bool):
        return int(value)
    return "" if value != value else value
