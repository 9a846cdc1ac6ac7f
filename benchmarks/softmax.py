"""SoftmaxReadout beside scikit-learn's LogisticRegression: time to its converged loss.

    python benchmarks/softmax.py [--text TINY_SHAKESPEARE] [--tokens MOST] [--max-iter N]

Two settings, the same states for both: sentences of the Elman grammar at 400 units, and tiny
Shakespeare's lower-cased characters at 1000 units; iterations are scikit-learn's. Loss is the
penalised training objective, nats a token (alpha = 1, C = 1).
"""

# ruff: noqa: E402
from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _report import options, report, row, seconds
from sklearn.linear_model import LogisticRegression

from esnlm import ElmanGrammar, Reservoir, SoftmaxReadout


def elman(n_units: int, n_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """States and next tokens of grammar sentences, the state reset at each."""
    grammar = ElmanGrammar()
    words = {word: k for k, word in enumerate(grammar.vocabulary)}
    sentences = grammar.sample(5500, 0)
    tokens = np.array([words[word] for sentence in sentences for word in sentence])
    lengths = [len(sentence) for sentence in sentences]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return states(n_units, tokens[:n_tokens], starts[starts < min(n_tokens, len(tokens))])


def characters(path: Path, n_units: int, n_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """States and next tokens of a text's lower-cased characters."""
    _, tokens = np.unique(list(path.read_text().lower()), return_inverse=True)
    return states(n_units, tokens[: int(0.9 * len(tokens))][:n_tokens], None)


def states(
    n_units: int, tokens: np.ndarray, starts: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Every state and next token, copied out of the harvest."""
    reservoir = Reservoir(n_units, random_state=0).fit(n_inputs=int(tokens.max()) + 1)
    blocks = list(reservoir.harvest(tokens, starts=starts))
    X = np.concatenate([block for block, _ in blocks])
    return X, np.concatenate([following for _, following in blocks])


def objective(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Penalised mean negative log-likelihood of (X, y)."""
    columns = np.searchsorted(model.classes_, y)
    total = 0.0
    for start in range(0, len(X), 8192):
        part = slice(start, start + 8192)
        log_p = model.predict_log_proba(X[part])
        total -= log_p[np.arange(len(log_p)), columns[part]].sum(dtype=np.float64)
    return float(total + 0.5 * np.sum(model.coef_.astype(np.float64) ** 2)) / len(X)


def compare(name: str, X: np.ndarray, y: np.ndarray, max_iter: int) -> dict[str, Any]:
    """One row: seconds of both, and how far our loss lies above theirs."""
    SoftmaxReadout(solver="newton-cg", max_iter=1).fit(X[:2000], y[:2000])
    ours, our_seconds = _timed(SoftmaxReadout(solver="newton-cg", tol=4e-3), X, y)
    peer, peer_seconds = _timed(LogisticRegression(max_iter=max_iter), X, y)
    our_loss, peer_loss = objective(ours, X, y), objective(peer, X, y)
    converged = int(peer.n_iter_[0]) < max_iter
    setting = (
        f"{name}: {len(X)} tokens, {X.shape[1]} units, {len(ours.classes_)} classes; "
        f"loss {our_loss:.5f}, peer {peer_loss:.5f} "
        f"({'converged' if converged else 'stopped'} at {int(peer.n_iter_[0])} iterations)"
    )
    met = our_loss - peer_loss <= 1e-3 and our_seconds <= 0.1 * peer_seconds
    target: Any = {"target": "loss within 1e-3 and ratio <= 0.1", "met": met}
    return row("softmax", setting, our_seconds, peer_seconds, "s", **target)


def _timed(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model, seconds(lambda: model.fit(X, y))


def main() -> None:
    given = options(__doc__, text=Path, tokens=1_100_000, max_iter=5000)
    rows = [compare("Elman", *elman(400, given.tokens), given.max_iter)]
    if given.text is not None:
        X, y = characters(given.text, 1000, given.tokens)
        rows.append(compare("Shakespeare", X, y, given.max_iter))
    report("softmax", rows)


if __name__ == "__main__":
    main()
