"""Frozen reservoirs on nested brackets, and what reads their states."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.neural_network import MLPClassifier

from esnlm.grammars.dyck import BRACKETS, PAIRS, allowed_closers
from esnlm.models.recipes import leak_rate
from esnlm.readouts.base.blocks import ArrayBlocks
from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.linear.ridge import RidgeReadout
from esnlm.readouts.mixture.mixture import MixtureOfExpertsReadout
from esnlm.readouts.sklearn.classifier import ClassifierReadout
from esnlm.readouts.softmax.softmax import SoftmaxReadout
from esnlm.reservoir.reservoir import Reservoir
from esnlm.runs.grid import Row
from esnlm.studies.dyck.options import DyckOptions
from esnlm.studies.dyck.stack import bracket_pairs, stack_reservoir
from esnlm.utils.arrays import Array, Bools, Floats, Ints64
from esnlm.utils.messages import progress_bar

_HIDDEN, _PASSES, _PATIENCE = 256, 30, 3
# Deviations below this share of the largest are rounding: such units are left as they are.
_LEAST_DEVIATION = 1e-6


class States(NamedTuple):
    """States (T, n_units) after brackets of sequences, these, what may close (T,), and lengths."""

    X: Array
    tokens: Ints64
    y: Ints64
    lengths: Ints64

    def are_right(self, predictions: Ints64) -> Bools:
        """Whether the predictions (T,) are right at every step of a sequence, (n,)."""
        wrong = np.split(predictions != self.y, np.cumsum(self.lengths)[:-1])
        return np.array([not steps.any() for steps in wrong])


#: Columns of a row, and what predicts the closers after each bracket.
Fitted: TypeAlias = tuple[Row, Callable[[States], Ints64]]


class Drive:
    """A reservoir of a setting, whose states are standardised by those of training sequences.

    The training sequences show a stack which brackets are a pair.
    """

    def __init__(
        self, model: str, n_units: int, leak: str, seed: int, train: Sequence[str]
    ) -> None:
        """Draw the weights of the reservoir."""
        law, self._is_stack = leak_rate(leak), model == "stack"
        self.reservoir = (
            stack_reservoir(n_units, law, bracket_pairs(_tokens_of(train)), seed)
            if self._is_stack
            else Reservoir(n_units, leak_rate=law, degree=min(32, n_units), random_state=seed).fit(
                n_inputs=len(BRACKETS)
            )
        )
        self._mean: Any = 0.0
        self._deviation: Any = 1.0

    def fit(self, sequences: Sequence[str]) -> States:
        """Standardise by these sequences, and return their states."""
        states = self.states(sequences)
        self._mean, deviation = states.X.mean(axis=0), states.X.std(axis=0)
        self._deviation = np.where(deviation > _LEAST_DEVIATION * deviation.max(), deviation, 1)
        return states._replace(X=self._standardised(states.X))

    def states(self, sequences: Sequence[str]) -> States:
        """Read each sequence from the zero state."""
        tokens = _tokens_of(sequences)
        X = np.concatenate(self.reservoir.transform(tokens))
        y = np.concatenate([closing(sequence) for sequence in sequences])
        lengths = np.array([len(sequence) for sequence in sequences])
        return States(self._standardised(X), np.concatenate(tokens), y, lengths)

    def timescales(self) -> Floats:
        """Timescales (n_units,) that the leak rates stand for."""
        reservoir = self.reservoir
        if self._is_stack:
            shares = reservoir.W_[: reservoir.n_units // 2].max(axis=1).toarray().ravel()
            return np.asarray(-1 / np.log(shares))
        leak = reservoir.leak_rate_.astype(np.float64)
        return -1 / np.log1p(-np.minimum(leak, 1 - 1e-12))

    def _standardised(self, X: Array) -> Array:
        return np.asarray((X - self._mean) / self._deviation, dtype=np.float32)


def check_reservoir(model: str, n_units: int, leak: str) -> None:
    """Refuse what a run would refuse, before others have taken hours."""
    law = leak_rate(leak)
    if model == "stack":
        stack_reservoir(n_units, law, [(0, 1)], 0)
    Reservoir(1, leak_rate=law).fit(n_inputs=1)


@lru_cache(maxsize=1)
def drive_of(
    model: str, n_units: int, leak: str, seed: int, train: tuple[str, ...]
) -> tuple[Drive, States]:
    """Return the reservoir of a setting and its training states, which readouts share."""
    drive = Drive(model, n_units, leak, seed, train)
    return drive, drive.fit(train)


def fit_attention(options: DyckOptions, seed: int, train: States) -> Fitted:
    """Train attention to the states of a sequence by the options of the LSTMs."""
    import torch

    from esnlm.torch.device import chosen_device, device_name
    from esnlm.torch.networks import dyck_attention

    place = chosen_device(options.device)
    torch.manual_seed(seed)
    network = dyck_attention.DyckAttention(train.X.shape[1]).to(place)
    with progress_bar(True, total=options.passes, unit="pass", leave=False) as bar:

        def report(loss: float) -> None:
            bar.set_postfix_str(f"loss {loss:.5f}", refresh=False)
            bar.update()

        loss = dyck_attention.train(
            network,
            dyck_attention.Sequences.of(*train),
            n_passes=options.passes,
            batch_size=options.batch_size,
            learning_rate=options.learning_rate,
            report=report,
        )
    row = {
        "train_loss": loss,
        "passes_run": options.passes,
        "n_parameters": sum(p.numel() for p in network.parameters()),
        "device": device_name(place),
    }
    sequences = dyck_attention.Sequences.of
    return row, lambda states: dyck_attention.predict(network, sequences(*states))


def fit_readout(name: str, seed: int, train: States, held_out: States) -> Fitted:
    """Fit a readout of the closer that may come next; held-out states stop training."""
    network = MLPClassifier(
        _HIDDEN, learning_rate_init=3e-3, max_iter=_PASSES, batch_size=256, random_state=seed
    )
    readouts: dict[str, Callable[[], StreamingReadout]] = {
        "ridge": RidgeReadout,
        "softmax": SoftmaxReadout,
        "moe": lambda: MixtureOfExpertsReadout(random_state=seed),
        "mlp": lambda: ClassifierReadout(classifier=network, patience=_PATIENCE),
    }
    judges = ArrayBlocks(held_out.X, held_out.y) if name in ("moe", "mlp") else None
    blocks = ArrayBlocks(train.X, train.y)
    readout = readouts[name]()
    readout.fit_blocks(blocks, np.arange(1 + len(PAIRS)), held_out=judges)
    row = {
        "train_loss": None,
        "passes_run": getattr(readout, "n_iter_", 1),
        "n_parameters": readout.n_parameters_,
        "device": "cpu",
    }
    return row, lambda states: readout.predict(states.X)


def _tokens_of(sequences: Sequence[str]) -> list[Ints64]:
    return [np.array([BRACKETS.index(b) for b in sequence]) for sequence in sequences]


def closing(sequence: Sequence[str]) -> Ints64:
    """Return the closer that may come next after each bracket, (T,): 0 for none, else 1 + its kind.

    >>> closing("([])").tolist()
    [1, 2, 1, 0]
    """
    allowed = allowed_closers(sequence)
    return np.where(allowed.any(axis=1), 1 + allowed.argmax(axis=1), 0)
