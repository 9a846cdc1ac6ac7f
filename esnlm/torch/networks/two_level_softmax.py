"""Softmax over classes of words, then over the words of a class, for large vocabularies."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from esnlm.features.spectral import SpectralWordFeatures
from esnlm.readouts.class_based.word_clusters import frequent_words_and_clusters
from esnlm.readouts.class_based.word_factors import ClassLayout
from esnlm.text.corpus import TokenStream
from esnlm.torch.device import full_precision
from esnlm.torch.networks.recurrence import frozen
from esnlm.utils.arrays import Array, Ints64

#: Directions of words that are compared for classes, and tokens counted at once.
COMPARED, PIECE = 64, 1 << 22
# Added to the occurrences of each word.
_PSEUDOCOUNT = 0.5
# Logit of a class without words.
_NEVER = -60.0
_INITIAL = 0.01

#: Of each class its first row, the one after its last, its first word, the one after its last.
_Spans = list[list[int]]


def n_classes(n_tokens: int) -> int:
    """Most classes of a vocabulary: 3 √V frequent words alone, and 2 √V of the others."""
    root = n_tokens**0.5
    return min(n_tokens, round(3 * root) + round(2 * root) + 1)


def counts_of(stream: TokenStream, n_tokens: int) -> Ints64:
    """Return how often each token occurs (n_tokens,), counted piece by piece."""
    tokens, counts = stream.tokens, np.zeros(n_tokens, dtype=np.int64)
    for first in range(0, len(tokens), PIECE):
        counts += np.bincount(tokens[first : first + PIECE], minlength=n_tokens)
    return counts


class TwoLevelSoftmax(nn.Module):
    """Hidden (n, D) -> ``log P(class | h) + log P(word | class, h)`` (Goodman 2001; Rachez eq. 35).

    A row costs products with all classes and with the words of one, a few hundredths of those with
    all words. Words are in the order of their classes in ``coef`` (V, D) and ``intercept`` (V,);
    ``word_class`` (V,) int64 is saved with the weights.
    """

    word_class: Tensor

    def __init__(self, n_inputs: int, n_tokens: int) -> None:
        super().__init__()
        self.classes = nn.Linear(n_inputs, n_classes(n_tokens))
        self.coef = nn.Parameter(_INITIAL * torch.randn(n_tokens, n_inputs))
        self.intercept = nn.Parameter(torch.zeros(n_tokens))
        nn.init.normal_(self.classes.weight, std=_INITIAL)
        nn.init.zeros_(self.classes.bias)
        first = np.arange(n_tokens) % self.classes.out_features
        self.word_class = nn.Buffer(torch.from_numpy(first))
        self._arrange(first)

    @staticmethod
    def count(n_inputs: int, n_tokens: int) -> int:
        """Return number of trained parameters."""
        return (n_classes(n_tokens) + n_tokens) * (n_inputs + 1)

    def begin(self, counts: Array, vectors: Array, seed: int) -> None:
        """Make classes of words that occur ``counts`` (V,) times, by vectors (V, P); set biases.

        The most frequent words have a class of their own, the others stand beside similar ones.
        """
        root = len(counts) ** 0.5
        n_frequent, n_clusters = round(3 * root), max(1, round(1.5 * root))
        word_class = frequent_words_and_clusters(counts, vectors, n_frequent, n_clusters, seed)
        self.word_class.copy_(torch.from_numpy(word_class))
        self._arrange(word_class)
        mass = counts + _PSEUDOCOUNT
        of_class = np.bincount(word_class, mass, self.classes.out_features)
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(of_class / of_class.sum()), _NEVER)
        within = np.log(mass / of_class[word_class])[self._layout.order]
        with torch.no_grad():
            self.classes.bias.copy_(torch.from_numpy(logs))
            self.intercept.copy_(torch.from_numpy(within))

    def survey(self, stream: TokenStream, seed: int = 0) -> None:
        """Make classes of the words of a training text, as `begin` does."""
        n_tokens = len(self.coef)
        words = SpectralWordFeatures(n_features=min(n_tokens, COMPARED), random_state=seed)
        words.fit(stream.tokens, starts=stream.starts, n_tokens=n_tokens)
        self.begin(counts_of(stream, n_tokens), words.embedding_, seed)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihoods (n,) float32, in nats, of targets (n,) after hidden (n, D)."""
        classes = self.word_class[targets]
        of_class = functional.cross_entropy(_wide(self.classes(hidden)), classes, reduction="none")
        within = self._by_class if hidden.device.type == "cpu" else self._masked
        return of_class + within(hidden, classes, self.position[targets])

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """Return log P(w | h) (..., V) of every word."""
        classes = functional.log_softmax(_wide(self.classes(hidden)), dim=-1)
        outputs = _wide(functional.linear(hidden, self.coef, self.intercept))
        sizes = self._layout.sizes.tolist()
        parts = [functional.log_softmax(each, dim=-1) for each in outputs.split(sizes, dim=-1)]
        logs = torch.cat(parts, dim=-1) + classes[..., self.sorted_class]
        return logs[..., self.position]

    def _by_class(self, hidden: Tensor, classes: Tensor, places: Tensor) -> Tensor:
        """Losses (n,) of words within their classes, from products with these classes' alone."""
        layout = self._layout
        order = torch.argsort(classes, stable=True)
        counts = np.bincount(classes.numpy(), minlength=layout.n_classes)
        ends, last = np.cumsum(counts), layout.starts + layout.sizes
        spans = np.stack([ends - counts, ends, layout.starts, last], axis=1)
        spans = spans[(counts > 0) & (layout.sizes > 1)].tolist()
        rows = hidden[order].to(self.coef.dtype)
        # Products of few rows each: copies of all words in half precision would cost more.
        with full_precision(hidden):
            losses = _Within.apply(rows, places[order], self.coef, self.intercept, spans)
        return torch.empty_like(losses).index_copy(0, order, losses)

    def _masked(self, hidden: Tensor, classes: Tensor, places: Tensor) -> Tensor:
        """Return the losses of `_by_class` from products with all words, which suits a GPU."""
        outputs = _wide(functional.linear(hidden, self.coef, self.intercept))
        others = self.sorted_class != classes[:, None]
        return functional.cross_entropy(
            outputs.masked_fill(others, float("-inf")), places, reduction="none"
        )

    def _arrange(self, word_class: Array) -> None:
        """Lay the words out by the class that each has."""
        self._layout = layout = ClassLayout(word_class)
        device = self.word_class.device
        self.sorted_class = frozen(word_class[layout.order]).to(device)
        self.position = frozen(layout.position).to(device)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        most = self.classes.out_features
        if not 0 <= int(self.word_class.min()) <= int(self.word_class.max()) < most:
            raise RuntimeError(f"word classes must lie in [0, {most})")
        try:
            self._arrange(self.word_class.cpu().numpy())
        except ValueError as error:
            raise RuntimeError(str(error)) from error


class _Within(torch.autograd.Function):
    """Losses of words within classes whose rows and words each lie together, with their gradient.

    By automatic differentiation the gradient of every class's words would be one of all words.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, places: Tensor, coef: Tensor, intercept: Tensor, spans: _Spans
    ) -> Tensor:
        """Return losses (n,) of words within their classes, in nats, span by span."""
        losses = hidden.new_zeros(len(hidden))
        errors = []
        for row, last_row, word, last_word in spans:
            h, own = hidden[row:last_row], (places[row:last_row] - word)[:, None]
            z = functional.linear(h, coef[word:last_word])
            logs = z.add_(intercept[word:last_word]).log_softmax(dim=1)
            torch.neg(logs.gather(1, own)[:, 0], out=losses[row:last_row])
            errors.append(logs.exp_().scatter_add_(1, own, logs.new_full(own.shape, -1.0)))
        ctx.save_for_backward(hidden, coef, *errors)
        ctx.spans = spans
        return losses

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None]:
        """Return gradients of hidden vectors (n, D), ``coef`` (V, D) and ``intercept`` (V,)."""
        hidden, coef, *errors = ctx.saved_tensors
        to_hidden, to_coef = torch.zeros_like(hidden), torch.empty_like(coef)
        to_intercept, position = coef.new_zeros(len(coef)), 0
        for (row, last_row, word, last_word), error in zip(ctx.spans, errors, strict=True):
            to_coef[position:word], position = 0.0, last_word
            dz = error * above[row:last_row, None]
            to_intercept[word:last_word] = dz.sum(dim=0)
            torch.mm(dz, coef[word:last_word], out=to_hidden[row:last_row])
            torch.mm(dz.t(), hidden[row:last_row], out=to_coef[word:last_word])
        to_coef[position:] = 0.0
        return to_hidden, None, to_coef, to_intercept, None


def _wide(logits: Tensor) -> Tensor:
    """Logits in float32 at least."""
    return logits if logits.dtype == torch.float64 else logits.float()
