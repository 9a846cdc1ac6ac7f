"""Reading times: what surprisal says of them beyond length, frequency and position.

The gain is a difference of Gaussian log-likelihoods a word, in nats, of two linear regressions of
mean reading times: with the surprisal of the word and of the words before, and without.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

from esnlm.models.surprisal import log_frequencies, word_counts
from esnlm.models.text_words import bare_word
from esnlm.text.backends import checked_text, is_of_word
from esnlm.text.corpus import CorpusError
from esnlm.text.stimuli import is_read_again
from esnlm.utils.arrays import Array, Bools, Floats
from esnlm.utils.messages import log
from esnlm.utils.validation import Count, Flag

#: Columns of a corpus: the text that a word belongs to, the word, its mean reading time.
ITEM, WORD, TIME = "item", "word", "reading_time"
#: Columns of `ReadingTimes.gains`.
GAIN_COLUMNS = (
    "model", "measure", "controls", "n_words", "gain", "standard_error", "gain_in_sample",
)  # fmt: skip
MEASURES = ("surprisal_bits", "surprisal_bits_without_marks")
_BASELINE = ("length", "log_frequency")
_PRODUCTS = ("length_squared", "log_frequency_squared", "length_by_frequency")
_CONTROLS = ("mark_before", "mark_after", "is_first", "is_last")
_OWN = ("sentence", "position", *_BASELINE, *_PRODUCTS, *_CONTROLS)
_LAGS = Count(0, 3)
# Full stops of Latin, Chinese, Devanagari, Arabic and Urdu script.
_END = re.compile(r"""[.?!\u2026\u3002\uff01\uff1f\u0964\u061f\u06d4]["'\u201d\u2019\u300d)\]]*$""")
_ABBREVIATION = re.compile(r"\W*(Mr|Mrs|Ms|Dr|St|Prof|[A-Z])\.")


@dataclass(frozen=True)
class ReadingTimes:
    """Gains of models on a corpus of reading times.

    ``gains``: a row for each model, measure and baseline, see `GAIN_COLUMNS`. ``words``: a row for
    each model and word, all predictors with their lags, to fit other models of one's own.
    """

    gains: pd.DataFrame
    words: pd.DataFrame


def reading_times(
    models: Any,
    corpus: pd.DataFrame,
    *,
    counts: Any = None,
    lags: int = 3,
    baseline_lags: int | None = None,
    quadratic: bool = False,
    context: str | int | None = None,
) -> ReadingTimes:
    """Return how much better surprisal predicts mean reading times than a baseline alone.

    The baseline has the length and log frequency of a word and of the ``baseline_lags`` words
    before it in the text (None: ``lags``), and its position in the text. With ``controls`` it also
    has marks before and after the word, and whether it is the first or last of a sentence. Then
    the surprisal of the word and of the ``lags`` words before is added.

    ``gain``: nats a word on texts that the regression did not see: each ``item`` is left out once.
    ``standard_error``: of the mean over items in which each counts once, however many words it has;
    in ``gain`` each word counts once. ``gain_in_sample``: of a regression on all words.
    All models have the same words: those whose predictors are known, and that hold no token, as
    the words before them, that training never had.

    Parameters
    ----------
    models : mapping of str to model, or a model
        A model is fitted and has a tokenizer; or it is a table with ``surprisal_bits`` of some
        other program, a row a word, and the keys of the corpus.
    corpus : DataFrame
        A row a word in the order of reading: ``item``, ``word`` and ``reading_time`` (of a mean
        over readers; NaN where there is none), as `esnlm.datasets.load_natural_stories` gives it.
        Sentences are those of a column ``sentence``, or else end at full stops. The predictors
        take the place of its own columns of their names, such as ``length``.
    counts : optional
        Text or numbers for the frequencies, see `LanguageModel.surprisal`. By default the training
        text of the first model whose tokens are words.
    lags, baseline_lags : int of 0 to 3
    quadratic : bool
        The baseline also has squares of length and log frequency, and their product.
    context : optional
        What models read before a sentence, see `LanguageModel.surprisal`.

    Raises
    ------
    ValueError
        Columns are missing, no frequencies are known, or there are fewer than two items.

    Source: Goodkind & Bicknell 2018 and Wilcox et al. 2020 for the gain in log-likelihood.
    """
    for name, value in (("lags", lags), ("baseline_lags", baseline_lags)):
        _LAGS._replace(none=name != "lags").check(name, value)
    Flag().check("quadratic", quadratic)
    named = dict(models) if isinstance(models, Mapping) else {"model": models}
    if not named:
        raise ValueError("models must hold a model or a table at least, got none")
    for model in named.values():
        if not isinstance(model, pd.DataFrame) and not hasattr(model, "surprisal"):
            raise ValueError(
                f"models must be models or tables by name, got {model!r:.100}: give"
                ' {"name": model}, and load folders by esnlm.load_model'
            )
    words = _checked_corpus(corpus)
    n_baseline = lags if baseline_lags is None else baseline_lags
    counts = _frequencies(named, counts)
    words = _with_baseline(words, counts, n_baseline)
    of_baseline = (*_BASELINE, *_PRODUCTS) if quadratic else _BASELINE
    tables = {
        name: _with_surprisal(words, name, model, context, lags) for name, model in named.items()
    }
    predictors = [TIME, *_lagged([*_BASELINE, *_CONTROLS], n_baseline), *_lagged(MEASURES, lags)]
    complete = np.logical_and.reduce(
        [
            table[table.columns.intersection(predictors)].notna().all(axis=1)
            & _is_known(table, lags)
            for table in tables.values()
        ]
    )
    if complete.sum() < 100:
        raise ValueError(
            f"{complete.sum()} words have a reading time and all predictors, and are known to all"
            " models, as the words before them; expected 100 at least"
        )
    rows = []
    for name, table in tables.items():
        part = table[complete]
        for controls in (False, True):
            baseline = [*_lagged(of_baseline, n_baseline), "position"]
            baseline += _lagged(_CONTROLS, n_baseline) if controls else []
            for measure in (each for each in MEASURES if each in part):
                gains = _gains(part, baseline, _lagged([measure], lags))
                rows.append((name, measure, controls, len(part), *gains))
    long = pd.concat([table.assign(model=name) for name, table in tables.items()])
    columns = ["model", *(column for column in long if column != "model")]
    return ReadingTimes(pd.DataFrame(rows, columns=[*GAIN_COLUMNS]), long[columns])


def _checked_corpus(corpus: pd.DataFrame) -> pd.DataFrame:
    """Return a corpus with sentences; raise ValueError where something is missing or misplaced."""
    if not isinstance(corpus, pd.DataFrame):
        raise CorpusError(
            f"corpus must be a table, got {type(corpus).__name__}: read a file by"
            " pandas.read_csv(name, keep_default_na=False)"
        )
    if (twice := corpus.columns[corpus.columns.duplicated()]).size:
        raise CorpusError(f"the corpus has two columns {twice[0]!r}: rename one")
    for column in (ITEM, WORD, TIME):
        if column not in corpus:
            raise CorpusError(
                f"the corpus has no column {column!r}: it has {', '.join(map(str, corpus))};"
                f" expected {ITEM}, {WORD} and {TIME}"
            )
    words = corpus.reset_index(drop=True)
    for column in words.columns.intersection([ITEM, WORD, "sentence"]):
        if (empty := (words[column].isna() | (words[column] == "")).to_numpy()).any():
            raise CorpusError(
                f"row {int(empty.argmax()) + 1} of the corpus has no {column}: fill"
                " it in, and read files with keep_default_na=False, as 'null' and 'NA' are words"
            )
    words[WORD] = [checked_text(str(word)).strip() for word in words[WORD]]
    wrong = np.flatnonzero(words[WORD].map(lambda word: len(word.split())) != 1)
    if len(wrong):
        raise CorpusError(
            f"row {wrong[0] + 1} of the corpus holds {words[WORD][wrong[0]]!r}, "
            "expected one word a row"
        )
    words[TIME] = _numbers(words[TIME], TIME, "the corpus")
    n_items = words[ITEM].nunique()
    if n_items < 2:
        raise CorpusError(f"the corpus has {n_items} item, expected two at least: one is left out")
    if (times := words[TIME].dropna().unique()).size == 1:
        raise CorpusError(f"{TIME} must vary from word to word, got {times[0]:g} for all")
    _check_order(words, [ITEM])
    texts = words.groupby(ITEM, sort=False, observed=True)[WORD]
    if texts.agg(lambda text: is_read_again(text.tolist())).mean() > 0.5:
        raise CorpusError(
            f"the words of most items, such as {words[ITEM][0]}, stand there more than once:"
            " expected a row a word, with the mean of its times over readers"
        )
    if "sentence" in words:
        _check_order(words, [ITEM, "sentence"])
    else:
        words["sentence"] = np.concatenate(
            [[*sentence_numbers(part.tolist())] for _, part in texts]
        )
    return words


def _numbers(column: "pd.Series[Any]", name: str, table: str) -> "pd.Series[float]":
    """Return a column as numbers, NaN where it is empty; CorpusError for text or infinity."""
    fields = column.replace(["", "NA", "NaN", "nan"], np.nan)
    numbers = pd.to_numeric(fields, errors="coerce").astype(float)
    if (is_wrong := (fields.notna() & ~np.isfinite(numbers)).to_numpy()).any():
        row = int(is_wrong.argmax())
        raise CorpusError(
            f"{name} must hold finite numbers with decimal points, and NA where there is none, got"
            f" {fields.tolist()[row]!r} in row {row + 1} of {table}"
        )
    return numbers


def _check_order(words: pd.DataFrame, keys: list[str]) -> None:
    """Raise CorpusError unless rows of the same keys follow each other."""
    groups = words.groupby(keys, sort=False, observed=True).ngroup()
    if not groups.is_monotonic_increasing:  # they are numbered as they come
        raise CorpusError(
            f"the words of each {keys[-1]} must follow each other in the corpus: sort the rows, and"
            " where each reader has some, give the mean over readers first"
        )


def sentence_numbers(words: Sequence[str]) -> Iterator[int]:
    """Yield the number of each word's sentence, which ends at a full stop before no small letter.

    >>> [*sentence_numbers(["Mr.", "Fox", "ran.", "“Oh!”", "he", "said.", "End"])]
    [1, 1, 1, 2, 2, 2, 3]
    """
    sentence = 1
    for word, following in zip(words, [*words[1:], ""], strict=True):
        yield sentence
        goes_on = re.sub(r"^[\W_]+", "", following)[:1].islower()
        if _END.search(word) and not goes_on and not _ABBREVIATION.fullmatch(word):
            sentence += 1


def _frequencies(models: Mapping[str, Any], counts: Any) -> Any:
    """Return counts of words: those that are named, or of the first model that has some."""
    if counts is not None:
        return word_counts(next(iter(models.values())), counts)
    for model in models.values():
        if not isinstance(model, pd.DataFrame) and (model_counts := word_counts(model)):
            return model_counts
    raise ValueError(
        "counts must be a text to count frequencies in, as no model has counts of words"
    )


def _with_baseline(words: pd.DataFrame, counts: Any, lags: int) -> pd.DataFrame:
    """Add length, frequency, position, marks and ends of sentences, and those of words before."""
    bare = words[WORD].map(bare_word)
    sentences = words.groupby([ITEM, "sentence"], sort=False).cumcount()
    last = words.groupby([ITEM, "sentence"], sort=False).cumcount(ascending=False)
    table = words.assign(
        position=words.groupby(ITEM, sort=False).cumcount() + 1,
        length=bare.str.len().astype(float),
        log_frequency=bare.map(log_frequencies(counts)),
        mark_before=words[WORD].map(lambda word: not is_of_word(word[0])).astype(float),
        mark_after=words[WORD].map(lambda word: not is_of_word(word[-1])).astype(float),
        is_first=(sentences == 0).astype(float),
        is_last=(last == 0).astype(float),
    )
    length, frequency = (table[name] for name in _BASELINE)
    products = length**2, frequency**2, length * frequency
    table = table.assign(**dict(zip(_PRODUCTS, products, strict=True)))
    return _with_lags(table, [*_BASELINE, *_PRODUCTS, *_CONTROLS], lags)


def _is_known(table: pd.DataFrame, lags: int) -> "pd.Series[bool]":
    """Mark words that hold no unknown token, as the words before them in the item."""
    in_vocabulary = table.get("n_unknown", pd.Series(0, index=table.index)) == 0
    before = [
        in_vocabulary.groupby(table[ITEM]).shift(lag, fill_value=True) for lag in range(lags + 1)
    ]
    return pd.concat(before, axis=1).all(axis=1)


def _with_lags(table: pd.DataFrame, names: Sequence[str], lags: int) -> pd.DataFrame:
    """Add the values of the words before in the item; NaN where there is none."""
    groups = table.groupby(ITEM, sort=False)
    before = {
        f"{name}_lag{lag}": groups[name].shift(lag) for name in names for lag in range(1, lags + 1)
    }
    return table.assign(**before)


def _with_surprisal(
    words: pd.DataFrame, name: str, model: Any, context: str | int | None, lags: int
) -> pd.DataFrame:
    """Add the surprisals of a model, or those of a table that has the keys of the words."""
    if isinstance(model, pd.DataFrame):
        table = _merged(words, name, model)
    else:
        texts = ["\n".join(_lines(part)) for _, part in words.groupby(ITEM, sort=False)]
        scores = model.surprisal(texts, context=context)
        if (read := scores["word"].tolist()) != (ours := words[WORD].tolist()):
            pairs = zip(read, ours, strict=False)
            row = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(read), len(ours)))
            raise CorpusError(
                f"{name} reads {read[row : row + 1]} where the corpus has {ours[row : row + 1]}, in"
                f" row {row + 1}: leave out the rows of marks such as <s> and </s>, and models with"
                " tokens of several words"
            )
        columns = [*MEASURES, "entropy_bits", "rank", "n_unknown"]
        table = words.assign(**{column: scores[column] for column in columns})
    return _with_lags(table, [measure for measure in MEASURES if measure in table], lags)


def _lines(words: pd.DataFrame) -> list[str]:
    """Return the sentences of an item."""
    return words.groupby("sentence", sort=False)[WORD].agg(" ".join).tolist()


def _merged(words: pd.DataFrame, model: str, surprisals: pd.DataFrame) -> pd.DataFrame:
    """Add the surprisals of another program by the keys that both tables have."""
    columns = [name for name in (*MEASURES, "n_unknown") if name in surprisals]
    keys = [name for name in words if name in surprisals and name not in (WORD, TIME, *_OWN)]
    if not keys or MEASURES[0] not in columns:
        raise ValueError(
            f"{model}: a table of surprisals needs {MEASURES[0]} and the keys of the corpus, such"
            f" as {ITEM}, got {', '.join(map(str, surprisals))}"
        )
    own, other = (table[keys].agg(_key, axis=1) for table in (words, surprisals))
    if not own.isin(other).any():
        raise ValueError(
            f"{model}: the table of surprisals and the corpus share no word by"
            f" {', '.join(map(str, keys))}: {other.iloc[:1].tolist()} and {own.iloc[:1].tolist()}"
            " are the first"
        )
    if own.duplicated().any() or other.duplicated().any():
        raise ValueError(
            f"{model}: the columns {', '.join(map(str, keys))} name a word more than once: give the"
            " corpus and the table a column that numbers the words of an item, such as zone, not"
            " sentence or position"
        )
    by_key = surprisals.set_index(other)
    if WORD in surprisals:
        theirs, ours = (
            each.dropna().astype(str).str.strip().map(bare_word)
            for each in (own.map(by_key[WORD]), words[WORD])
        )
        if (differ := theirs != ours[theirs.index]).any():
            row: Any = differ.idxmax()
            raise ValueError(
                f"{model}: the table of surprisals has {by_key[WORD][own[row]]!r} where the corpus"
                f" has {words[WORD][row]!r}, by {', '.join(map(str, keys))} {own[row]!r}: number"
                " the words alike, or leave out its words"
            )
    for name in columns:
        by_key[name] = _numbers(by_key[name], f"{model}: {name}", "the table")
    if n_missing := len(words) - own.isin(other).sum():
        log.warning(f"{model}: {n_missing} of {len(words)} words have no row in the table")
    return words.assign(**{name: own.map(by_key[name]) for name in columns})


def _key(values: "pd.Series[Any]") -> str:
    """Return the key of a row; 3 and 3.0 are equal, as a column with gaps has floats."""
    return "\t".join(f"{value}".removesuffix(".0") for value in values)


def _lagged(names: Sequence[str], lags: int) -> list[str]:
    return [*names, *(f"{name}_lag{lag}" for name in names for lag in range(1, lags + 1))]


def _gains(
    table: pd.DataFrame, baseline: Sequence[str], more: Sequence[str]
) -> tuple[float, float, float]:
    """Return the gain on items left out, its standard error, and the gain in the sample."""
    times, items = table[TIME].to_numpy(), table[ITEM].to_numpy()
    without, full = (table[names].to_numpy(float) for names in ([*baseline], [*baseline, *more]))
    everything = np.ones(len(times), dtype=bool)
    for item, part in table.groupby(ITEM, sort=False, observed=True):
        if (n_words := len(table) - len(part)) <= full.shape[1] + 1:
            raise ValueError(
                f"{n_words} words are left without item {item}, too few for {full.shape[1]}"
                " predictors: lower lags, or give times of more items"
            )

    def gain(train: Bools, test: Bools) -> Floats:
        return np.asarray(
            _log_densities(full, times, train, test) - _log_densities(without, times, train, test)
        )

    left_out = [gain(items != item, items == item) for item in pd.unique(items)]
    means = np.array([gains.mean() for gains in left_out])
    error = means.std(ddof=1) / np.sqrt(len(means))
    return (
        float(np.concatenate(left_out).mean()),
        float(error),
        float(gain(everything, everything).mean()),
    )


def _log_densities(predictors: Array, times: Floats, train: Bools, test: Bools) -> Floats:
    """Return log densities of times under a regression, whose variance is that of its residuals."""
    fit = LinearRegression().fit(predictors[train], times[train])
    residuals = times - fit.predict(predictors)
    variance = float(np.mean(residuals[train] ** 2))
    return np.asarray(-0.5 * (np.log(2 * np.pi * variance) + residuals[test] ** 2 / variance))
