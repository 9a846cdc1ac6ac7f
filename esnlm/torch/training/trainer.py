"""One training loop for every network: resumable to the last bit, in one process or several."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esnlm.storage.checkpoints import Checkpoint
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.shuffling import evenly_spaced
from esnlm.torch.device import (
    Processes,
    half_precision,
    has_bfloat16,
    on_device,
    peak_memory,
)
from esnlm.torch.networks.network import Network, State
from esnlm.torch.networks.registry import name_of
from esnlm.torch.scoring import log_probabilities, selected
from esnlm.torch.training.batches import Batch, Ready, batches_of, read_ahead
from esnlm.torch.training.optimizer import Averaging, Optimizer, array_of
from esnlm.torch.training.plan import Plan, check_readable
from esnlm.training.resumable_run import ResumableRun, stream_digest
from esnlm.utils import __version__
from esnlm.utils.arrays import Ints64
from esnlm.utils.memory import check_memory
from esnlm.utils.messages import log
from esnlm.utils.state_dict import Arrays

#: Columns of a training log beside those of `esnlm.training.training_log.COLUMNS`.
COLUMNS = (
    "training_nll", "learning_rate", "tokens_per_second", "peak_memory_bytes",
    "trainable_parameters", "total_parameters", "nonzero_parameters",
)  # fmt: skip

_ADVICE = (
    "lower the learning rate, or the spectral radius of a reservoir whose activation is not tanh;"
    " or clip gradients"
)


class NetworkTrainer(ResumableRun):
    """Trains a network by AdamW or SGD on a stream of tokens, step by step; see `run`.

    The result depends on the network, the stream, the held-out stream, the plan and the number of
    processes alone: on a CPU, to the last bit, neither on checkpoints nor on how often a run was
    interrupted and resumed. The gradient of a step is that of the mean over its predicted tokens
    in all processes. `run` raises FloatingPointError if the loss is not a number any more. The
    network is trained in place, where it is; ``n_steps`` are those of the whole run.
    """

    def __init__(
        self,
        network: Network,
        stream: TokenStream,
        held_out: TokenStream | None = None,
        plan: Plan | None = None,
        processes: Processes | None = None,
    ) -> None:
        """Set up batches, held-out text and optimiser, and let the network survey the text."""
        self.network = network
        self.plan = plan or Plan()
        if (most := network.longest) is not None:
            if self.plan.length == Plan.length:
                self.plan = dataclasses.replace(self.plan, length=min(most, Plan.length))
            check_readable(self.plan, most)
        self.processes = processes or Processes()
        self.stream = stream
        self.batches = batches_of(stream, self.plan, self.processes.size)
        self.held_out = None
        if held_out is not None:
            self.held_out = evenly_spaced(held_out, self.plan.held_out_tokens)
            if not self.held_out.n_predicted:
                raise CorpusError("the held-out text holds no token to predict")
        self.steps_a_pass = -(-self.batches.n_batches // self.plan.accumulate)
        self.n_steps = self.plan.steps or self.steps_a_pass * self.plan.n_passes
        self.is_first = self.processes.first
        network.survey(stream)
        self.processes.from_first([p.data for p in network.trained_parameters().values()])
        self._first_weights = weights_digest(network)
        if network.device.type == "cpu":
            n_trained = network.n_trained
            a_weight = 4 if self.plan.optimizer == "sgd" else 12  # gradient, and two moments
            what = f"the gradients of {n_trained} trained parameters"
            check_memory(what, a_weight * n_trained, "lower one of the network's sizes")
        decay = self.plan.decay(self.n_steps, self.steps_a_pass)
        self.optimizer = Optimizer(network, dataclasses.replace(self.plan, weight_decay=decay))
        self.averaging = Averaging(network, self.plan.patience)
        if self.plan.patience is not None and self.held_out is None:
            raise ValueError("patience needs a held-out text, whose loss it watches")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return what the result of the run depends on, as JSON-compatible values."""
        settings = {
            "esnlm": __version__,
            "model": name_of(self.network),
            "network": self.network.settings(),
            "corpus": stream_digest(self.stream),
            "held-out text": self.held_out and stream_digest(self.held_out),
            "number of processes": self.processes.size,
            "device": self.network.device.type,
            **dataclasses.asdict(self.plan),
            "first weights": self._first_weights,  # last, as the seed of a plan says more
        }
        return dict(json.loads(json.dumps(settings)))

    def _begin(self, checkpoint: Checkpoint | None) -> int:
        """Begin anew or from a checkpoint; return the predicted tokens of the whole run."""
        device = self.network.device
        self._state: State = None
        self._nll = torch.zeros(2, dtype=torch.float64, device=device)
        self._since = (0, 0.0)
        self._has_warned = False
        if checkpoint is not None:
            facts, arrays, rank = checkpoint.facts, checkpoint.arrays, self.processes.rank
            self.last_score, self._since = facts["score"], tuple(facts["since"])
            self.optimizer.load(arrays)
            self.averaging.restore(facts["averaging"], arrays)
            self._state = restored_state(facts["carried"], arrays, rank, device)
            self._nll = torch.from_numpy(arrays["nll"][rank]).to(device)
        passes, rest = divmod(self.n_steps, self.steps_a_pass)
        earlier = islice(self.batches.of_pass(passes), rest * self.plan.accumulate)
        return self.batches.n_predicted * passes + sum(int(b.counted.sum()) for b in earlier)

    def _snapshot(self) -> tuple[dict[str, Any], Arrays]:
        shape, carried = described_state(self._state, self.processes)
        arrays = self.optimizer.arrays() | carried | self.averaging.arrays()
        arrays["nll"] = torch.stack(self.processes.all_of(self._nll)).cpu().numpy()
        facts = {"since": self._since, "score": self.last_score, "carried": shape}
        return facts | {"averaging": self.averaging.facts()}, arrays

    def _agreed(self, wishes: list[bool]) -> list[bool]:
        if self.processes.size == 1:
            return wishes
        flags = torch.tensor(wishes, dtype=torch.int32)  # on the CPU: no device is waited for
        self.processes.sum([flags])
        return [flag > 0 for flag in flags.tolist()]

    def _steps(self) -> Iterator[None]:
        """Take the remaining steps, yield after each but the last, and score when due."""
        tenth = max(1, -(-self.n_steps // 10))
        every = tenth if self.plan.score_every is None else self.plan.score_every
        if self.plan.bf16 and self.is_first and not has_bfloat16(self.network.device):
            log.warning(
                "this processor has no bfloat16 instructions: training without bf16 is faster"
            )
        self.network.train()
        n_passes = -(-self.n_steps // self.steps_a_pass)
        for number in range(self.step // self.steps_a_pass, n_passes):
            first = (self.step - number * self.steps_a_pass) * self.plan.accumulate
            batches = read_ahead(self.network, self.batches, self.processes, number, first)
            while group := list(islice(batches, self.plan.accumulate)):
                self._learn(group)
                last = self.step == self.n_steps
                due = last or (every > 0 and self.step % every == 0)
                if due or self.step % 50 == 0:
                    self._check()  # waits for the device, so that seconds are those of the work
                if due:
                    self._score(number + 1)
                if last:
                    return
                yield

    def _finish(self) -> None:
        self.averaging.finish()
        self.network.eval()

    def _learn(self, batches: list[Ready]) -> None:
        """One step of the optimiser."""
        plan, mine = self.plan, self.processes
        # Dropout starts anew at each step, so that nothing but its number decides it.
        words = np.random.SeedSequence([plan.random_state, self.step, mine.rank]).generate_state(2)
        torch.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
        rate = plan.rate(self.step, self.n_steps)
        if plan.vary_length:
            lengths = [ready.batch.tokens.shape[1] for ready in batches]
            rate *= sum(lengths) / len(lengths) / plan.length
        n_predicted = sum(ready.n_predicted for ready in batches)
        for ready in batches:
            self._backward(ready, n_predicted)
        self.optimizer.share(mine)
        self.optimizer.step(self.step, rate, plan.clip)
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
        with half_precision(device, self.plan.bf16):
            hidden = ready.hidden() if ready.hidden else self._read(batch, rows, steps)
        following = on_device(batch.following[rows, steps], device)
        # Logits of one part at a time, whose gradient needs no others': hidden vectors gather it.
        grads = []
        at_once = self.network.rows_at_once()
        for part, targets in zip(hidden.split(at_once), following.split(at_once), strict=True):
            leaf = part.detach().requires_grad_(hidden.requires_grad)
            with half_precision(device, self.plan.bf16):
                losses = self.network.loss(leaf, targets)
            (losses.sum() / n_predicted).backward()
            grads.append(leaf.grad)
            self._nll[0] += losses.detach().double().sum()
        self._nll[1] += len(rows)
        if hidden.requires_grad:
            roots, gradients = [hidden], [grads[0] if len(grads) == 1 else torch.cat(grads)]
            padded = self.plan.batching == "sentences"
            penalty = self.network.penalty(batch.counted if padded else None)
            if penalty is not None:
                roots.append(penalty)
                gradients.append(penalty.new_tensor(len(rows) / n_predicted))
            torch.autograd.backward(roots, gradients)

    def _read(self, batch: Batch, rows: Ints64, steps: Ints64) -> Tensor:
        """Hidden (n, D) of the counted places, with gradient."""
        tokens = on_device(batch.tokens, self.network.device)
        if self.plan.last_only and self.plan.batching == "windows":
            return self.network.last(tokens)
        hidden, state = self.network.encode(tokens, self._state)
        if self.plan.batching == "streams":
            self._state = mapped(Tensor.detach, state)
        return selected(hidden, rows, steps)

    def _check(self) -> None:
        """Raise FloatingPointError of a loss that is no number; warn, once, of one far off."""
        total, n = self._nll.tolist()
        if not math.isfinite(total):
            raise FloatingPointError(f"the loss is not finite after step {self.step}: {_ADVICE}")
        chance = math.log(self.network.n_tokens)
        if total > 2 * chance * n and self.is_first and not self._has_warned:
            self._has_warned = True
            log.warning(
                f"the training loss is {total / n:.4g} nats a token, that of equal probabilities"
                f" {chance:.3g}: {_ADVICE}"
            )

    def _score(self, number: int) -> None:
        """Held-out and training loss (nats a token), to the log and the progress bar."""
        begins = torch.zeros(1, dtype=torch.int32)
        with self._untimed():
            self.processes.sum([self._nll])
            if self.is_first and self.held_out is not None:
                network, stream = self.averaging.network, self.held_out
                scores = log_probabilities(
                    network, stream.tokens, stream.starts, bf16=self.plan.bf16
                )
                self.last_score = -float(scores[stream.predicted()].mean())
                begins += int(self.averaging.add_loss(self.last_score))
            if self.is_first:
                total, n = self._nll.tolist()
                tokens, seconds = self._since
                pace = (self.tokens - tokens) / max(self.seconds - seconds, 1e-9)
                rate = self.plan.rate(max(0, self.step - 1), self.n_steps)
                usage = peak_memory(self.network.device), *self.network.parameter_counts()
                self._record(number, (total / max(n, 1.0), rate, round(pace, 1), *usage))
            self.processes.sum([begins])
        if begins.item():
            self.averaging.begin()
        self._nll.zero_()
        self._since = (self.tokens, self.seconds)


def mapped(function: Callable[[Any], Any], state: Any) -> Any:
    """Nested tuples or lists with a function of each entry that is not None, as tuples."""
    if isinstance(state, tuple | list):
        return tuple(mapped(function, part) for part in state)
    return None if state is None else function(state)


def described_state(state: State, processes: Processes) -> tuple[Any, Arrays]:
    """Return a carried state of all processes: nested numbers of its tensors, and these by name."""
    arrays: Arrays = {}

    def store(tensor: Tensor) -> int:
        number = len(arrays) // processes.size
        for rank, part in enumerate(processes.all_of(tensor)):
            arrays[f"carried.{rank}.{number}"] = array_of(part)
        return number

    return mapped(store, state), arrays


def restored_state(shape: Any, arrays: Arrays, rank: int, device: torch.device) -> State:
    """Return the inverse of `described_state`, for one process."""
    return mapped(lambda n: torch.from_numpy(arrays[f"carried.{rank}.{n}"]).to(device), shape)


def weights_digest(network: Network) -> str:
    """SHA-256 of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in chain(network.named_parameters(), network.named_buffers()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
    return digest.hexdigest()
