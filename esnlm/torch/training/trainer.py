"""One training loop for every network: resumable to the last bit, in one process or several."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from esnlm.models.resumable_run import StoppedError
from esnlm.models.training_log import TrainingLog
from esnlm.storage.checkpoints import Checkpoint, Checkpoints
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.shuffling import evenly_spaced
from esnlm.torch.device import half_precision, on_device, peak_memory
from esnlm.torch.networks.counts import parameter_counts
from esnlm.torch.networks.network import Network, State
from esnlm.torch.scoring import log_probabilities, selected
from esnlm.torch.training.averaging import Averaging
from esnlm.torch.training.batches import Batch, batches_of
from esnlm.torch.training.distributed import Processes
from esnlm.torch.training.fingerprint import check_same, run_settings
from esnlm.torch.training.plan import Plan
from esnlm.torch.training.prefetch import Ahead, Ready
from esnlm.torch.training.state import (
    described_state,
    detached,
    restore_training,
    restored_state,
    trained_parameters,
    training_arrays,
)

#: Columns of a training log beside those of `esnlm.models.training_log.COLUMNS`.
COLUMNS = (
    "training_nll", "learning_rate", "tokens_per_second", "peak_memory_bytes",
    "trainable_parameters", "total_parameters", "nonzero_parameters",
)  # fmt: skip
_SCORES = 10
_CHECKED = 50


class NetworkTrainer:
    """Trains a network by AdamW or SGD on a stream of tokens, step by step.

    The result depends on the network, the stream, the held-out stream, the plan and the number of
    processes alone: on a CPU, to the last bit, neither on checkpoints nor on how often a run was
    interrupted and resumed. The gradient of a step is that of the mean over its predicted tokens,
    whichever process has them.

    Parameters
    ----------
    network : Network
        Trained in place, where it is.
    stream : TokenStream
        May be a memory map.
    held_out : TokenStream, optional
        Scored along the way.
    plan : Plan
    processes : Processes
        See `esnlm.torch.training.distributed.joined`.

    Attributes
    ----------
    step, n_steps : int
        Steps made, and of the whole run.
    tokens : int
        Predicted tokens learned so far, over all passes and processes.
    seconds : float
        Of training, interruptions and held-out scores left out.
    last_score : float or None
        Newest held-out loss, in nats a token.

    Examples
    --------
    >>> from esnlm.torch.networks.esn import EchoStateNetwork
    >>> _ = torch.manual_seed(0)
    >>> network = EchoStateNetwork(3, reservoir={"n_units": 20, "random_state": 0}, rank=2)
    >>> stream = TokenStream(np.tile([0, 1, 2, 1], 200), np.arange(0, 800, 4), np.array([0, 800]))
    >>> trainer = NetworkTrainer(network, stream, stream, Plan(batch_size=4, learning_rate=0.05))
    >>> trainer.run()
    >>> trainer.step, trainer.last_score < 0.1
    (50, True)
    """

    def __init__(
        self,
        network: Network,
        stream: TokenStream,
        held_out: TokenStream | None = None,
        plan: Plan | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.network = network
        self.plan = plan or Plan()
        self.processes = processes or Processes()
        self.stream = stream
        self.batches = batches_of(stream, self.plan, self.processes.size)
        self.held_out = None
        if held_out is not None:
            self.held_out = evenly_spaced(held_out, self.plan.held_out_tokens)
            if not self.held_out.n_predicted:
                raise CorpusError("the held-out text holds no token to predict")
        self.steps_a_pass = -(-self.batches.n_batches // self.plan.accumulate)
        self.n_steps = self.steps_a_pass * self.plan.epochs
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.last_score: float | None = None
        self.processes.from_first([p.data for p in trained_parameters(network).values()])
        self._settings = run_settings(
            network, self.plan, stream, self.held_out, self.processes.size
        )
        self.optimizer = self._new_optimizer()
        self.averaging = Averaging(trained_parameters(network), self.plan.patience)
        if self.plan.patience is not None and self.held_out is None:
            raise ValueError("patience needs a held-out text, whose loss it watches")

    def run(
        self,
        checkpoints: Checkpoints | None = None,
        *,
        resume: bool = False,
        save_every: float = 600.0,
        log: TrainingLog | None = None,
        stop: Callable[[], bool] = lambda: False,
        verbose: bool = False,
    ) -> None:
        """Train to the end; parameters are those of `esnlm.models.training.Trainer.run`.

        Raises
        ------
        CheckpointError
            The checkpoint is of a run with other settings or another corpus.
        StoppedError
            It was asked to stop, and did after a step; a checkpoint was saved if any are.
        FloatingPointError
            The loss is not a number any more.
        """
        self._checkpoints, self._save_every, self._stop = checkpoints, save_every, stop
        self._log = log or TrainingLog(None)
        self._state: State = None
        self._nll = torch.zeros(2, dtype=torch.float64, device=self.network.device)
        self._since = (0, 0.0)
        found = checkpoints.latest() if checkpoints is not None and resume else None
        self._restore(found)
        if self.processes.first:
            self._log.begin(0 if found is None else found.facts["log_rows"])
        self._saved_at = self._clock = time.monotonic()
        hidden = None if verbose and self.processes.first else True
        total = self.batches.n_predicted * self.plan.epochs
        with tqdm(total=total, unit="tok", unit_scale=True, disable=hidden) as self._bar:
            self._bar.update(self.tokens)
            for number in range(self.step // self.steps_a_pass, self.plan.epochs):
                self._pass(number)
        self.averaging.finish()
        self.network.eval()

    def _new_optimizer(self) -> torch.optim.Optimizer:
        plan = self.plan
        groups = self.network.parameter_groups(plan.weight_decay)
        if plan.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=plan.learning_rate)
        # One pass over weights and moments, where torch's default makes a dozen.
        fused = True if self.network.device.type in ("cpu", "cuda") else None
        return torch.optim.AdamW(groups, lr=plan.learning_rate, betas=plan.betas, fused=fused)

    def digest(self) -> str:
        """What this run is known by: it stands for all that the result depends on."""
        return hashlib.sha256(json.dumps(self._settings, sort_keys=True).encode()).hexdigest()

    def _pass(self, number: int) -> None:
        done = self.step - number * self.steps_a_pass
        ahead = Ahead(self.network, self.batches, self.processes)
        batches = ahead.of_pass(number, done * self.plan.accumulate)
        every = self.plan.score_every
        if every is None:
            every = max(1, -(-self.n_steps // _SCORES))
        self.network.train()
        while self.step < (number + 1) * self.steps_a_pass:
            self._learn(list(islice(batches, self.plan.accumulate)))
            last = self.step == self.n_steps
            due = last or (every > 0 and self.step % every == 0)
            if due or self.step % _CHECKED == 0:
                self._check()  # waits for the device, so that seconds are those of the work done
            if due:
                self._score(number + 1)
            if not last:
                self._pause()

    def _learn(self, batches: list[Ready]) -> None:
        """One step of the optimiser."""
        plan, mine = self.plan, self.processes
        # Dropout starts anew at each step, so that nothing but its number decides it.
        words = np.random.SeedSequence([plan.seed, self.step, mine.rank]).generate_state(2)
        torch.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
        rate = plan.rate(self.step, self.n_steps) * self._share_of_length(batches)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("rate_scale", 1.0)
        n_predicted = sum(ready.n_predicted for ready in batches)
        for ready in batches:
            self._backward(ready, n_predicted)
        grads = []
        for parameter in trained_parameters(self.network).values():
            if parameter.grad is None and mine.size > 1:
                parameter.grad = torch.zeros_like(parameter)
            if parameter.grad is not None:
                grads.append(parameter.grad)
        mine.sum(grads)
        if plan.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), plan.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.averaging.step()
        self.step += 1
        self.tokens += n_predicted
        self._bar.update(n_predicted)

    def _backward(self, ready: Ready, n_predicted: int) -> None:
        """Add the gradient of a batch's share of the mean loss."""
        batch, device = ready.batch, self.network.device
        if not batch.continues:
            self._state = None
        rows, steps = np.nonzero(batch.counted)
        if not len(rows):
            return
        with self._autocast():
            hidden = ready.hidden() if ready.hidden else self._read(batch, rows, steps)
        following = on_device(batch.following[rows, steps], device)
        # Logits of one part at a time, whose gradient needs no others': hidden vectors gather it.
        grads = []
        at_once = self.network.rows_at_once()
        for part, targets in zip(hidden.split(at_once), following.split(at_once), strict=True):
            leaf = part.detach().requires_grad_(hidden.requires_grad)
            with self._autocast():
                losses = self.network.loss(leaf, targets)
            (losses.sum() / n_predicted).backward()
            grads.append(leaf.grad)
            self._nll[0] += losses.detach().double().sum()
        self._nll[1] += len(rows)
        if hidden.requires_grad:
            roots, given = [hidden], [grads[0] if len(grads) == 1 else torch.cat(grads)]
            penalty = self.network.penalty()
            if penalty is not None:
                roots.append(penalty)
                given.append(penalty.new_tensor(len(rows) / n_predicted))
            torch.autograd.backward(roots, given)

    def _share_of_length(self, batches: list[Ready]) -> float:
        """What the rate of a step on pieces of drawn lengths is multiplied by."""
        if not self.plan.vary_length:
            return 1.0
        lengths = [ready.batch.tokens.shape[1] for ready in batches]
        return sum(lengths) / len(lengths) / self.plan.length

    def _autocast(self) -> torch.autocast:
        return half_precision(self.network.device, self.plan.bf16)

    def _read(self, batch: Batch, rows: NDArray[np.int64], steps: NDArray[np.int64]) -> Tensor:
        """Hidden (n, D) of the counted places, with gradient."""
        tokens = on_device(batch.tokens, self.network.device)
        if self.plan.last_only and self.plan.batching == "windows":
            return self.network.last(tokens)
        hidden, state = self.network.encode(tokens, self._state)
        if self.plan.batching == "streams":
            self._state = detached(state)
        return selected(hidden, rows, steps)

    def _check(self) -> None:
        if not bool(torch.isfinite(self._nll[0])):
            raise FloatingPointError(
                f"the loss is not finite after step {self.step}: lower --learning-rate, or the"
                " spectral radius of a reservoir whose activation is not tanh; or set --clip"
            )

    def _score(self, number: int) -> None:
        """Held-out and training loss (nats a token), to the log and the progress line."""
        self.seconds += time.monotonic() - self._clock
        self.processes.sum([self._nll])
        begins = torch.zeros(1, dtype=torch.int32)
        if self.processes.first:
            if self.held_out is not None:
                self.last_score = self._held_out_loss(self.held_out)
                begins += int(self.averaging.heard(self.last_score))
                self._bar.set_postfix_str(f"held-out {self.last_score:.4f} nats")
            total = self.batches.n_predicted * self.plan.epochs
            row = (number, self.tokens, total, self.last_score, self.seconds)
            self._log.add(*row, self._further())
        self.processes.sum([begins])
        if begins.item():
            self.averaging.begin()
        self._nll.zero_()
        self._since = (self.tokens, self.seconds)
        self._clock = time.monotonic()

    def _held_out_loss(self, held: TokenStream) -> float:
        with self.averaging.applied():
            scores = log_probabilities(self.network, held.tokens, held.starts, bf16=self.plan.bf16)
        return -float(scores[held.predicted()].mean())

    def _further(self) -> list[Any]:
        total, n = self._nll.tolist()
        tokens, seconds = self._since
        pace = (self.tokens - tokens) / max(self.seconds - seconds, 1e-9)
        rate = self.plan.rate(max(0, self.step - 1), self.n_steps)
        counts = dataclasses.astuple(parameter_counts(self.network))
        loss = total / max(n, 1.0)
        return [loss, rate, round(pace, 1), peak_memory(self.network.device), *counts]

    def _pause(self) -> None:
        """Between two steps: a checkpoint when it is time, and the end when it is asked for."""
        now = time.monotonic()
        wishes = [self._stop(), self.processes.first and now - self._saved_at >= self._save_every]
        if self.processes.size > 1:
            flags = torch.tensor(wishes, dtype=torch.int32)  # on the CPU: no device is waited for
            self.processes.sum([flags])
            wishes = [flag > 0 for flag in flags.tolist()]
        stop, save = wishes
        if stop or save:
            self._save()
            self._saved_at = time.monotonic()
        if stop:
            raise StoppedError

    def _save(self) -> None:
        if self._checkpoints is None:
            return
        shape, carried = described_state(self._state, self.processes)
        nll = self.processes.all_of(self._nll)
        if not self.processes.first:
            return
        facts = {
            "settings": self._settings,
            "tokens": self.tokens,
            "seconds": self.seconds + time.monotonic() - self._clock,
            "since": self._since,
            "score": self.last_score,
            "log_rows": self._log.n_rows,
            "carried": shape,
            "averaging": self.averaging.facts(),
        }
        arrays = training_arrays(self.network, self.optimizer) | carried
        arrays |= self.averaging.arrays()
        arrays["nll"] = torch.stack(nll).cpu().numpy()
        self._checkpoints.save(self.step, facts, arrays)

    def _restore(self, found: Checkpoint | None) -> None:
        if found is None:
            return
        check_same(found.facts["settings"], self._settings)
        facts, rank = found.facts, self.processes.rank
        self.step, self.tokens = found.step, facts["tokens"]
        self.seconds, self.last_score = facts["seconds"], facts["score"]
        self._since = tuple(facts["since"])
        restore_training(self.network, self.optimizer, found.arrays)
        self.averaging.restore(facts["averaging"], found.arrays)
        device = self.network.device
        self._state = restored_state(facts["carried"], found.arrays, rank, device)
        self._nll = torch.from_numpy(found.arrays["nll"][rank]).to(device)
