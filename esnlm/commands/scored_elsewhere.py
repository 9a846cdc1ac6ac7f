"""Texts and sentences that the workers of a cluster score with models they load by their paths."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

#: Paths of one model or two, the share of the first, and the device.
Judges = tuple[tuple[str, ...], float | None, str | None]


def members(model: Path, other: Path | None) -> list[Path]:
    """The model, or the two of --interpolate."""
    return [model] if other is None else [model, other]


def judges(paths: Sequence[Path], weight: float | None, device: str | None) -> Judges:
    """Models as workers find them, under the same paths as this process."""
    return tuple(str(path.absolute()) for path in paths), weight, device


@contextmanager
def texts(
    cluster: str, given: Judges, split: str, layout: Any, paths: Sequence[str]
) -> Iterator[Any]:
    """A function to the scored parts of each path, which are asked for in their order."""
    from esnlm.experiments.common.workers import workers

    with workers(cluster) as found:
        whole = [str(Path(path).absolute()) for path in paths]
        results = found.map("score", _scored_text, (given, split, layout), whole)
        yield lambda path: next(results)


def batches(
    cluster: str | None, given: Judges
) -> AbstractContextManager[Callable[..., Any] | None]:
    """A function from batches of token ids to their scores, batch by batch; None for no cluster."""
    return nullcontext() if cluster is None else _batches(cluster, given)


@contextmanager
def _batches(cluster: str, given: Judges) -> Iterator[Callable[..., Any]]:
    from esnlm.experiments.common.workers import workers

    with workers(cluster) as found:

        def scores(all_batches: Sequence[Any]) -> Iterable[list[float]]:
            return found.map("score", _scored_batch, given, all_batches)

        yield scores


@lru_cache(maxsize=1)
def _models(given: Judges) -> list[Any]:
    from esnlm.loading import load_model

    return [load_model(Path(path), device=given[2]) for path in given[0]]


def _scored_text(given: tuple[Judges, str, Any], path: str) -> list[Any]:
    from esnlm.evaluation.measures import Evaluation

    of, split, layout = given
    models, names, weight = _models(of), of[0], of[1]
    return list(Evaluation(models, names, split, weight=weight, layout=layout).parts(path))


def _scored_batch(given: Judges, batch: Sequence[tuple[int, ...]]) -> list[float]:
    from esnlm.evaluation.interpolation import InterpolatedModel
    from esnlm.evaluation.minimal_pairs.scores import batch_scores

    models, weight = _models(given), given[1]
    judge = models[0] if weight is None else InterpolatedModel(models[0], models[1], weight)
    return batch_scores(judge, batch)
