"""The history of an expectation-maximisation run, and when to stop it."""

import math
import warnings
from dataclasses import dataclass, field

from sklearn.exceptions import ConvergenceWarning

from esnlm.utils.messages import say


@dataclass
class ConvergenceMonitor:
    """Keeps log-likelihoods per row (nats) of every iteration and decides when to stop.

    ``penalised``, ``log_likelihood`` and ``held_out`` have an entry for the start and one for each
    iteration; ``held_out`` is empty without held-out rows. ``best`` is the iteration whose
    parameters are kept: best held-out, or the last. ``converged`` and ``stopped_early`` say whether
    convergence, or held-out rows, ended the run. Parameters: see `MixtureOfExpertsReadout`.
    """

    tol: float
    max_iter: int
    patience: int
    verbose: bool = False
    penalised: list[float] = field(default_factory=list)
    log_likelihood: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)
    converged: bool = False

    def report(
        self, penalised: float, log_likelihood: float, held_out: float | None = None
    ) -> None:
        """Add the values of an iteration; warns where the penalised one fell."""
        for value in (penalised, held_out):
            if value is not None and not math.isfinite(value):
                raise FloatingPointError(
                    f"the log-likelihood became {value}: check the states for huge values"
                )
        if self.penalised:
            gain = penalised - self.penalised[-1]
            if gain < 0:
                warnings.warn(
                    f"the penalised log-likelihood fell by {-gain:.3g} nats a row at "
                    f"iteration {len(self.penalised)}",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            self.converged = bool(gain < self.tol)
        self.penalised.append(penalised)
        self.log_likelihood.append(log_likelihood)
        if held_out is not None:
            self.held_out.append(held_out)
        if self.verbose:
            held = f"  held out {self.held_out[-1]:.5f}" if self.held_out else ""
            line = f"EM {self.n_iter:4d}  penalised {penalised:.5f}  training {log_likelihood:.5f}"
            say(line + held)

    @property
    def n_iter(self) -> int:
        """Iterations made."""
        return max(len(self.penalised) - 1, 0)

    @property
    def best(self) -> int:
        """Return the iteration with the best held-out score, or else the last one."""
        if not self.held_out:
            return self.n_iter
        return max(range(len(self.held_out)), key=lambda i: (self.held_out[i], i))

    @property
    def stopped_early(self) -> bool:
        """Return whether ``patience`` iterations passed without a better held-out score."""
        return self.n_iter - self.best >= self.patience

    @property
    def is_best(self) -> bool:
        """Whether the parameters of the last report are the ones to keep."""
        return self.best == self.n_iter

    @property
    def done(self) -> bool:
        """Whether to stop: converged, no longer better on held-out rows, or out of iterations."""
        return self.converged or self.stopped_early or self.n_iter >= self.max_iter

    @property
    def score(self) -> float:
        """Best held-out, else last penalised log-likelihood: restarts are compared by it."""
        return self.held_out[self.best] if self.held_out else self.penalised[-1]
