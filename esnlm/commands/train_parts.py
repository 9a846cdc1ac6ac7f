"""``esnlm train SHARDS --parts P --cluster ...``: the corpus of passes that are shared out."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from esnlm.commands.options.common import given, option_name
from esnlm.commands.options.corpus import is_shards
from esnlm.commands.options.train import TrainOptions
from esnlm.utils.progress import phase

if TYPE_CHECKING:
    from esnlm.models.parts import PartedCorpus
    from esnlm.utils.sums import Reduce


def is_url(text: Sequence[str]) -> bool:
    """Whether the corpus is one that fsspec reads."""
    return len(text) == 1 and "://" in text[0]


def open_corpus(text: Sequence[str], options: TrainOptions) -> "PartedCorpus":
    """The shards; those of a folder with every byte checked."""
    from esnlm.models.parts import PartedCorpus
    from esnlm.text.shards import Shards

    if is_url(text):
        for name in ("tokenizer", "vocab_size", "lower", "documents", "reset"):
            if getattr(options.corpus, name) not in (None, False, "sentence"):
                raise ValueError(f"{option_name(name)} is of text, and {text[0]} holds shards")
        return PartedCorpus(text[0])
    if not is_shards(text):
        asked = " and ".join(option_name(name) for name in given(options.shared))
        raise ValueError(
            f"{asked} need shards, which others can read in parts: esnlm prepare TEXT --out SHARDS"
        )
    place = Path(text[0]).absolute()
    Shards(place)
    return PartedCorpus(place)


@contextmanager
def sharing(cluster: str | None) -> "Iterator[Reduce]":
    """What works on parts: the workers of a cluster, or this process."""
    from esnlm.utils.sums import reduce_here

    if cluster is None:
        yield reduce_here
        return
    from esnlm.experiments.common.cluster import workers

    with ExitStack() as stack:
        with phase("starting workers" if cluster.startswith("local:") else "asking for workers"):
            found = stack.enter_context(workers(cluster))
        yield found
