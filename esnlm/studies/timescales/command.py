"""``esnlm timescales``, how long units of a trained LSTM remember, and ``esnlm ablation``.

Word ablation measures what is left of a word in a model's state, some tokens later.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from esnlm.options.common import Documents, File, Model, Png, ResultOptions, Texts, finish, group
from esnlm.options.corpus import model_and_stream
from esnlm.options.needs import check_needs
from esnlm.options.values import file_name, integer, positive
from esnlm.storage.results import results, write_rows
from esnlm.torch import require_torch
from esnlm.utils.arrays import Floats

if TYPE_CHECKING:
    from esnlm.studies.timescales.ablation import Decay

COLUMNS = (
    "model", "layer", "n_units", "fixed", "n_tokens", "median", "share_below_20", "longest",
    "closest_alpha", "ks_closest_alpha", "gaussian_mean", "ks_gaussian", "correlation",
)  # fmt: skip
_INFORMATION = ("text", "distance", "nats", "exponent")
_LAGS = ("model", "layer", "group", "n_units", "assigned", "lag", "share")


@group()
class UnitOptions(ResultOptions):
    """Options of both commands."""

    csv: File | None = None
    """Also write the rows of the layers here."""
    units_csv: File | None = None
    """Write the timescales of all units here."""
    plot: Png | None = None
    """Draw the plot here."""
    documents: Documents = None


@group()
class TimescalesOptions(UnitOptions):
    """Options of ``esnlm timescales``."""

    markov_copy: File | None = None
    """Write as many words here, each drawn after the one before as often as in TEXT, to train
    --markov-model on."""
    markov_model: Annotated[Path | None, file_name("MODEL2")] = None
    """An LSTM trained on a Markov copy: --plot compares its timescales on a copy of TEXT."""
    information: File | None = None
    """Write the mutual information of words of TEXT, and of its Markov copy, by distance here."""
    shapes: tuple[Annotated[float, positive("ALPHA")], ...] = ()
    """Draw the inverse gamma timescales of these shapes in --plot, too."""
    gates: Png | None = None
    """Draw the forget gates on the first tokens of TEXT here."""


@group()
class AblationOptions(UnitOptions):
    """Options of ``esnlm ablation``."""

    context: Annotated[int, integer("T", 1)] = 20
    """Tokens before the word."""
    lags: Annotated[int, integer("T", 1)] = 20
    """Tokens after the word."""
    windows: Annotated[int, integer("K", 1)] = 1000
    """Words that are left out, at most."""
    group: Annotated[int, integer("U", 1)] = 100
    """Units of a group, by assigned timescale."""
    beside: Annotated[tuple[File, ...], Parameter(metavar="MODEL2")] = ()
    """Further models, reservoirs or LSTMs, whose rows and curves stand beside."""
    routing: File | None = None
    """Silence one group of units after the other, by zero in an LSTM and by their mean in a
    reservoir, and write the losses of words by frequency here; a plot is beside it."""
    counts: Annotated[tuple[str, ...], Parameter(metavar="TRAIN")] = ()
    """Training text of --routing, to count the frequencies of words in."""
    classes: Annotated[str | None, Parameter(metavar="FILE")] = None
    """Classes of words for --routing: a CSV with columns word and class, or english, a list of
    determiners, pronouns, auxiliaries and other closed classes."""


def timescales(
    model: Model, text: Texts, /, *, options: TimescalesOptions = TimescalesOptions()
) -> int:
    """Measure and print; the exit status."""
    require_torch("esnlm timescales")
    check_needs(options, ("markov_model shapes", options.plot, "--plot PNG, which draws it"))
    files = _files(options, COLUMNS, "measured")
    more = (options.markov_copy, None), (options.information, _INFORMATION), (options.gates, None)
    named: list[str | Path] = [model, *text]
    if options.markov_model is not None:
        named.append(options.markov_model)
    with results((*files, *more), named, overwrite=options.overwrite):
        loaded, stream, measured = _measured(model, text, options.documents)
        assigned = _assigned_timescales(loaded, len(measured))
        layers: list[tuple[Any, Any, Any]] = list(zip(count(1), measured, assigned, strict=False))
        if len(layers) > 1:
            layers.append(("all", np.concatenate(measured), None))
        rows = [_row(str(model), *layer, n_tokens=len(stream.tokens)) for layer in layers]
        for row in rows:
            print("  ".join(_phrases(row)))
        markov, informations = _markov(text, options)
        if options.plot is not None:
            from esnlm.studies.timescales.plots import plot_timescales

            plot_timescales(
                measured, assigned, options.plot, markov, informations, shapes=options.shapes
            )
        if options.gates is not None:
            from esnlm.studies.timescales.gates import plot_gates

            plot_gates(loaded.network, stream.tokens, options.gates)
        # Last: what ends in an error is run again, and would add its rows twice.
        _write(files, rows, measured, assigned, overwrite=options.overwrite)
        nats = _information_rows(informations)
        write_rows(options.information, _INFORMATION, nats, overwrite=options.overwrite)
    finish(*(path for path, _ in (*files, *more)))
    return 0


def _measured(model: Path, text: Sequence[str], documents: str | None) -> tuple[Any, Any, Any]:
    """Return the LSTM of a folder, the tokens of text, and timescales of each layer on them."""
    from esnlm.torch.networks.multi_timescale_lstm import is_lstm, measured_timescales

    loaded, stream = model_and_stream(model, text, documents)
    network = getattr(loaded, "network", None)
    if network is None or not is_lstm(network):
        raise ValueError(f"{model} holds no LSTM: train one with --model lstm or mts-lstm")
    starts = [] if stream.starts is None else stream.starts[1:]
    return loaded, stream, measured_timescales(network, np.split(stream.tokens, starts))


def _markov(text: Sequence[str], options: TimescalesOptions) -> tuple[Any, dict[str, Any]]:
    """Return timescales of --markov-model on a Markov copy, and information in text and copy."""
    if not (options.markov_copy or options.markov_model or options.information):
        return None, {}
    from esnlm.storage.atomic import file_aside
    from esnlm.studies.timescales import markov
    from esnlm.text.corpus import TextCorpus

    documents = TextCorpus(text, options.documents or "file")
    lines = (line for document in documents for line in document.splitlines())
    tokens, vocabulary = markov.words_of(lines)
    copy = markov.markov_copy(tokens)
    with TemporaryDirectory() as folder:
        path = options.markov_copy or Path(folder) / "copy.txt"
        with file_aside(path) as file:
            file.write(markov.text_of_words(copy, vocabulary).encode())
        times = None
        if options.markov_model is not None:
            *_, times = _measured(options.markov_model, (str(path),), options.documents)
    if options.information is None:
        return times, {}
    return times, {"text": markov.information(tokens), "Markov copy": markov.information(copy)}


def _information_rows(informations: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        dict(zip(_INFORMATION, (name, int(distance), float(nats), each.exponent), strict=True))
        for name, each in informations.items()
        for distance, nats in zip(each.distances, each.nats, strict=True)
    ]


def ablation(model: Model, text: Texts, /, *, options: AblationOptions = AblationOptions()) -> int:
    """Measure and print; the exit status."""
    from esnlm.studies.timescales.ablation import ROUTING
    from esnlm.studies.timescales.word_classes import read_classes

    files = _files(options, _LAGS, "ablation")
    if (options.routing is None) != (not options.counts):
        raise ValueError("--routing FILE and --counts TRAIN go together: name both")
    if options.classes is not None and options.routing is None:
        raise ValueError("--classes is only valid with --routing FILE: name it")
    classes = None if options.classes is None else read_classes(options.classes)
    routing_plot = None if options.routing is None else options.routing.with_suffix(".png")
    more = (options.routing, ROUTING), (routing_plot, None)
    named: list[str | Path] = [model, *options.beside, *text, *options.counts]
    named += [] if options.classes is None else [options.classes]
    with results((*files, *more), named, overwrite=options.overwrite):
        loaded, stream = model_and_stream(model, text, options.documents)
        rows, times, assigned = _ablation_rows(model, loaded, stream, options)
        for other in options.beside:
            print(f"beside: {other}")
            other_model = model_and_stream(other, text, options.documents)
            rows += _ablation_rows(other, *other_model, options)[0]
        if options.plot is not None:
            from esnlm.studies.timescales.plots import plot_ablation

            plot_ablation(rows, options.plot)
        if options.routing is not None and routing_plot is not None:
            _route(loaded, stream, model, options, assigned, classes, routing_plot)
        _write(files, rows, times, assigned, overwrite=options.overwrite)
    finish(*(path for path, _ in (*files, *more)))
    return 0


def _ablation_rows(
    name: Path, model: Any, stream: Any, options: AblationOptions
) -> tuple[list[dict[str, Any]], list[Floats], list[Any]]:
    """Return the rows of a model, and timescales of each layer's units, measured and assigned."""
    from esnlm.studies.timescales.ablation import word_ablation

    layers = word_ablation(
        model, stream, context=options.context, n_lags=options.lags, n_windows=options.windows
    )
    assigned = _assigned_timescales(model, len(layers))
    times = [decay.timescales() for decay in layers]
    rows: list[dict[str, Any]] = []
    for number, decay, of_units, fixed in zip(count(1), layers, times, assigned, strict=False):
        print(_decay_in_words(number, decay, of_units))
        for curve in _curves(decay, fixed, options.group):
            values = (str(name), number, *curve[:-1])
            lags = ((*values, lag, float(share)) for lag, share in enumerate(curve[-1]))
            rows += [dict(zip(_LAGS, lag, strict=True)) for lag in lags]
    return rows, times, assigned


def _route(
    loaded: Any,
    stream: Any,
    model: Path,
    options: AblationOptions,
    assigned: list[Any],
    classes: dict[str, str] | None,
    plot: Path,
) -> None:
    """Draw the rows of ``--routing``, and write them."""
    from esnlm.evaluation.token_groups import by_frequency
    from esnlm.options.corpus import split_of
    from esnlm.studies.timescales import routing
    from esnlm.studies.timescales.ablation import ROUTING
    from esnlm.studies.timescales.word_classes import by_class
    from esnlm.text.corpus import TextCorpus

    layer = routing.widest_layer(assigned)
    targets = stream.tokens[stream.predicted()]
    train = loaded.tokenize(TextCorpus(options.counts, split_of(loaded, options.documents)))
    counts = np.bincount(train.tokens, minlength=len(loaded.tokenizer_))
    groupings = [by_frequency(counts[targets])]
    if classes is not None:
        groupings.append(by_class(targets, loaded.tokenizer_, classes))
    network = getattr(loaded, "network", None)
    if network is None:
        losses = routing.reservoir_losses(loaded, stream)
    else:
        from esnlm.studies.timescales.silenced_network import network_losses

        texts = np.split(stream.tokens, [] if stream.starts is None else stream.starts[1:])
        losses = partial(network_losses, network, layer, texts)
    named = str(model), layer + 1
    rows = routing.routing_rows(named, assigned[layer], losses, groupings, options.group)
    routing.plot_routing(rows, plot)
    write_rows(options.routing, ROUTING, rows, overwrite=options.overwrite)


def _files(options: UnitOptions, columns: tuple[str, ...], name: str) -> Any:
    """Files to write, and columns of those that are CSVs: rows of layers, then those of units."""
    of_units = "layer", "unit", "assigned", name
    return (options.csv, columns), (options.units_csv, of_units), (options.plot, None)


def _write(
    files: Any, rows: list[dict[str, Any]], times: Any, assigned: list[Any], *, overwrite: bool
) -> None:
    """Write the rows of layers, and the timescales of all units; None was learned."""
    (csv, columns), (units_csv, of_units), _ = files
    units = [
        {"layer": layer, "unit": unit, of_units[-1]: time}
        | ({} if fixed is None else {"assigned": float(fixed[unit])})
        for layer, of_layer, fixed in zip(count(1), times, assigned, strict=False)
        for unit, time in enumerate(of_layer.tolist())
    ]
    write_rows(csv, columns, rows, overwrite=overwrite)
    write_rows(units_csv, of_units, units, overwrite=overwrite)


def _assigned_timescales(model: Any, n_layers: int) -> list[Any]:
    """Timescales that each layer's units were given, None where they were learned."""
    reservoir = getattr(model, "reservoir_", None)
    if reservoir is not None:
        with np.errstate(divide="ignore"):  # without leak, a unit keeps nothing of its own
            return [-1 / np.log1p(-reservoir.leak_rate_.astype(np.float64))]
    assigned = getattr(model.network, "assigned_timescales", None)
    return [None if assigned is None else assigned(layer) for layer in range(n_layers)]


def _row(model: str, layer: Any, times: Floats, assigned: Any, n_tokens: int) -> dict[str, Any]:
    """Return the row of a layer: statistics of its timescales (n_units,) and closest laws."""
    from esnlm.reservoir.timescales import closest_gaussian, closest_inverse_gamma

    alpha, distance = closest_inverse_gamma(times)
    mean, to_gaussian = closest_gaussian(times)
    correlation: Any = ""
    if assigned is not None:
        correlation = float(np.corrcoef(np.log(times), np.log(assigned))[0, 1])
    values = (
        model, layer, len(times), assigned is not None, n_tokens, float(np.median(times)),
        float((times < 20).mean()), float(times.max()), alpha, distance, mean, to_gaussian,
        correlation,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _phrases(row: dict[str, Any]) -> list[str]:
    """Return the row of a layer as phrases to print."""
    words = [
        f"layer {row['layer']:>3}",
        f"{row['n_units']:5} units",
        f"median {row['median']:.3g}",
        f"below 20: {row['share_below_20']:.1%}",
        f"longest {row['longest']:.4g}",
        f"closest inverse gamma {row['closest_alpha']:g} (KS {row['ks_closest_alpha']:.3f})",
        f"Gaussian {row['gaussian_mean']:g} (KS {row['ks_gaussian']:.3f})",
    ]
    if row["correlation"] != "":
        words.append(f"correlation with the assigned {row['correlation']:.3f}")
    return words


def _curves(
    decay: "Decay", assigned: Floats | None, size: int
) -> Iterator[tuple[str, int, float | str, Any]]:
    """Name, size, mean timescale and decay of a layer, and of units of about one timescale."""
    yield "all", decay.by_unit.shape[1], "", decay.share
    if assigned is not None and len(assigned) > size:
        order = np.argsort(assigned, kind="stable")
        for number, start in enumerate(range(0, len(order), size), 1):
            units = order[start : start + size]
            sums = decay.by_unit[:, units].sum(axis=1)
            share = sums / sums[0] if sums[0] > 0 else np.zeros_like(sums)
            yield str(number), len(units), float(np.mean(assigned[units])), share


def _decay_in_words(layer: int, decay: "Decay", times: Floats) -> str:
    """Return some of the lags, and the timescales beside the nearest inverse gamma."""
    from esnlm.reservoir.timescales import closest_inverse_gamma

    n_lags = len(decay.share) - 1
    lags = sorted({1, max(1, n_lags // 4), max(1, n_lags // 2), n_lags})
    shares = ", ".join(f"{decay.share[lag]:.2g} after {lag}" for lag in lags)
    finite = times[np.isfinite(times)]
    line = f"layer {layer}: {decay.by_unit.shape[1]} units  left {shares}"
    if len(finite):
        alpha, distance = closest_inverse_gamma(finite)
        line += f"  median timescale {np.median(finite):.3g}"
        line += f"  closest inverse gamma {alpha:g} (KS {distance:.3f})"
    return line
