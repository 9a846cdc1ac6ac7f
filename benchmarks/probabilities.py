"""Does a model give words absurd probabilities, on new text or after what it saw often?

    python benchmarks/probabilities.py MODEL NGRAM TRAIN HELD_OUT --name SETTING

MODEL and NGRAM (the peer) are folders of ``esnlm train`` and ``esnlm ngram`` on the shards TRAIN;
with ``--weight W`` the first is interpolated with the second, of which it has the share W.
A continuation is a token seen 20 times after one beginning of a sentence; its log-probability
stands beside its relative frequency there, for beginnings of up to three tokens, which direct
connections read, and for longer ones, of which the state alone knows.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from _report import options, report, row
from numpy.typing import NDArray

from esnlm.loading import load_model
from esnlm.models.base import SequenceModel
from esnlm.models.interpolated import InterpolatedModel
from esnlm.text.corpus import TokenStream, join_sequences
from esnlm.text.shards import Shards
from esnlm.text.shuffling import target_counts

_FREQUENT = 20
# Nats above the worst of the n-gram, and from the relative frequency.
_ABOVE, _WITHIN = 3.0, 1.0
# Tokens that direct connections read.
_DIRECT = 3


def main() -> None:
    paths = "model", "ngram", "train", "held_out"
    given = options(__doc__, *paths, name="one million words", weight=1.0)
    train, held_out = (Shards(path).stream() for path in (given.train, given.held_out))
    ours, peer = load_model(given.model), load_model(given.ngram)
    if given.weight < 1:
        ours = InterpolatedModel([ours, peer], weights=[given.weight, 1 - given.weight])
    rows = [*losses(ours, peer, train, held_out), *gaps(ours, peer, train)]
    report("probabilities", [one | {"setting": given.name} for one in rows], merge=True)


def losses(
    ours: SequenceModel, peer: SequenceModel, train: TokenStream, held_out: TokenStream
) -> Iterator[dict[str, Any]]:
    """Held-out nats: of all tokens, of those without a place in training, of first ones."""
    found, known = (-model._log_probabilities(held_out) for model in (ours, peer))
    tokens, predicted = np.asarray(held_out.tokens), held_out.predicted()
    worst = known.max() + _ABOVE
    first = np.zeros_like(predicted)
    first[np.asarray(held_out.starts) + 1] = True
    never = predicted & (target_counts(train, ours.n_tokens_) == 0)[tokens]
    for name, which in {"all": predicted, "never seen": never, "first": first}.items():
        nats, others = float(found[which].mean()), float(known[which].mean())
        met = nats <= others
        yield row(f"nats, {name} tokens", "", nats, others, "nats", target="<= peer", met=met)
    most, peers = float(found.max()), float(known.max())
    yield row("dearest token", "", most, peers, "nats", target="<= peer + 3", met=most <= worst)
    n = int(np.sum(found > worst))
    yield row("tokens dearer than that", "", n, 0, "tokens", target="0", met=not n)


def gaps(ours: SequenceModel, peer: SequenceModel, train: TokenStream) -> Iterator[dict[str, Any]]:
    """Continuations of beginnings of sentences, against their relative frequencies."""
    sequences, wanted = continuations(train)
    stream = join_sequences([sequences], n_tokens=ours.n_tokens_, reset=True)
    ends = np.cumsum([len(each) for each in sequences]) - 1
    ours_gap, peers_gap = (m._log_probabilities(stream)[ends] - wanted for m in (ours, peer))
    n_read = np.array([len(each) - 1 for each in sequences])
    for of, which in {
        "": n_read > 0,
        " of up to three tokens": n_read <= _DIRECT,
        " of more tokens": n_read > _DIRECT,
    }.items():
        near, peers = (float(np.mean(np.abs(g[which]) <= _WITHIN)) for g in (ours_gap, peers_gap))
        name = f"share within 1 nat of {which.sum()} continuations{of}"
        yield row(name, "", near, peers, "share", target="1", met=near == 1)
    lowest, peers = float(ours_gap.min()), float(peers_gap.min())
    yield row("lowest continuation", "", lowest, peers, "nats", target=">= -1", met=lowest >= -1)


def continuations(train: TokenStream) -> tuple[list[NDArray[Any]], NDArray[np.float64]]:
    """Beginnings of sentences with a frequent next token, and the logs of its shares there."""
    tokens, starts = np.asarray(train.tokens).astype(np.int64), np.asarray(train.starts)
    lengths = np.diff(np.append(starts, len(tokens)))
    found, shares = [], []
    place, n_read = tokens[starts], 1
    while len(starts):
        inside = lengths > n_read
        starts, lengths, place = starts[inside], lengths[inside], place[inside]
        pairs = np.stack([place, tokens[starts + n_read]])
        _, first, place, counts = np.unique(
            pairs, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        often = counts >= _FREQUENT
        _, of_context, in_context = np.unique(pairs[0], return_inverse=True, return_counts=True)
        for one in np.flatnonzero(often):
            at = starts[first[one]]
            found.append(tokens[at : at + n_read + 1])
            shares.append(counts[one] / in_context[of_context[first[one]]])
        kept = often[place]
        starts, lengths, place = starts[kept], lengths[kept], place[kept]
        n_read += 1
    return found, np.log(shares)


if __name__ == "__main__":
    main()
