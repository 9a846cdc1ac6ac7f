"""The optimiser of a run, against torch's own on the same gradients; what decays."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from esnlm.torch.networks.registry import (  # noqa: E402
    NETWORKS,
    network_class,
    settings_of_size,
)
from esnlm.torch.training.optimizer import Optimizer  # noqa: E402
from esnlm.torch.training.plan import Plan  # noqa: E402

pytestmark = pytest.mark.torch

ROWS = torch.tensor([[2, 5, 2], [0, 5, 5], [7, 7, 7]])


class Vectors(nn.Module):
    """Embeddings, with sparse gradients or not, and a linear map of them."""

    device = torch.device("cpu")

    def __init__(self, sparse: bool, vectors_decay: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.sparse, self.vectors_decay = sparse, vectors_decay
        self.table, self.map = nn.Embedding(9, 4, sparse=sparse), nn.Linear(4, 3)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        own = {"sparse": self.sparse, "times": 3.0, "weight_decay": self.vectors_decay}
        return [
            {"params": list(self.map.parameters()), "weight_decay": weight_decay},
            {"params": [self.table.weight], **own},
        ]

    def backward(self, rows: Any) -> None:
        targets = torch.arange(len(rows)) % 3
        functional.cross_entropy(self.map(self.table(rows)), targets).backward()


def stepped(sparse: bool, clip: float | None = None, **plan: Any) -> Vectors:
    made = Vectors(sparse)
    optimizer = Optimizer(made, Plan(**plan))
    for number, rows in enumerate(ROWS):
        made.backward(rows)
        optimizer.step(number, 0.01, clip)
        assert all(parameter.grad is None for parameter in made.parameters())
    return made


def test_weights_and_vectors_move_as_by_adamw_and_sparse_adam() -> None:
    made, expected = stepped(sparse=True, betas=(0.9, 0.98), weight_decay=0.1), Vectors(True)
    parts = [
        torch.optim.AdamW(expected.map.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=0.1),
        torch.optim.SparseAdam([expected.table.weight], lr=0.03, betas=(0.9, 0.98)),
    ]
    for rows in ROWS:
        expected.backward(rows)
        for part in parts:
            part.step()
            part.zero_grad()
    for ours, theirs in zip(made.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    unread = [1, 3, 4, 6, 8]
    assert torch.equal(made.table.weight[unread], Vectors(True).table.weight[unread])


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
def test_hidden_matrices_move_as_by_muon_and_the_rest_as_by_adamw() -> None:
    def made() -> Any:
        torch.manual_seed(0)
        return network_class("gpt")(11, n_units=8, n_heads=2, n_layers=1, dropout=0.0)

    ours, theirs = made(), made()
    optimizer = Optimizer(ours, Plan(optimizer="muon", weight_decay=0.1))
    hidden = [p for p in theirs.layers.parameters() if p.dim() == 2]
    others = [p for p in theirs.parameters() if all(p is not each for each in hidden)]
    matrices = [p for p in others if p.dim() > 1]
    parts = [
        torch.optim.Muon(hidden, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(matrices, lr=0.01, weight_decay=0.1),
        torch.optim.AdamW([p for p in others if p.dim() == 1], lr=0.01, weight_decay=0.0),
    ]
    tokens = torch.arange(24).remainder(11).reshape(2, 12)
    for number in range(3):
        for network in (ours, theirs):
            read = network.encode(tokens[:, :-1])[0].flatten(0, 1)
            network.loss(read, tokens[:, 1:].flatten()).mean().backward()
        optimizer.step(number, 0.01)
        for part in parts:
            part.step()
            part.zero_grad()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    again = Optimizer(ours, Plan(optimizer="muon"))
    for parameter in ours.parameters():
        moments = optimizer.moments(parameter)
        again.restore(parameter, moments)
        assert again.moments(parameter).keys() == moments.keys()


def test_muon_needs_a_torch_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(ValueError, match=r"muon needs 2\.9"):
        Optimizer(network_class("gpt")(11, n_units=8, n_heads=2), Plan(optimizer="muon"))


@pytest.mark.parametrize("clip", [None, 1e-3, 0.2, 1e3])
def test_sparse_gradients_are_stepped_and_clipped_as_dense_ones(clip: float | None) -> None:
    found = [stepped(sparse, clip, optimizer="sgd", weight_decay=0.0) for sparse in (True, False)]
    for ours, theirs in zip(*(made.parameters() for made in found), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_clipped_step_has_the_norm_that_was_asked() -> None:
    made, before = Vectors(True), Vectors(True)
    optimizer = Optimizer(made, Plan(optimizer="sgd", weight_decay=0.0))
    made.backward(ROWS[0])
    optimizer.step(0, 1.0, 1e-3)
    table = (made.table.weight - before.table.weight) / 3.0
    pairs = zip(made.map.parameters(), before.map.parameters(), strict=True)
    moved = [table, *(ours - theirs for ours, theirs in pairs)]
    norm = sum(each.detach().square().sum().item() for each in moved) ** 0.5
    assert norm == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_all_vectors_decay_read_or_not(kind: str) -> None:
    decaying, still = (Vectors(True, vectors_decay=decay) for decay in (0.5, 0.0))
    ours, theirs = (Optimizer(made, Plan(optimizer=kind)) for made in (decaying, still))
    for number in range(32):
        decaying.backward(ROWS[number % 3])
        still.load_state_dict(decaying.state_dict())
        still.backward(ROWS[number % 3])
        ours.step(number, 0.01)
        theirs.step(number, 0.01)
        left = (1 - 0.01 * 0.5) ** 8 if number % 8 == 7 else 1.0
        torch.testing.assert_close(decaying.table.weight, left * still.table.weight)
        torch.testing.assert_close(decaying.map.weight, still.map.weight)
    unread = Vectors(True).table.weight[1]
    torch.testing.assert_close(decaying.table.weight[1], (1 - 0.01 * 0.5) ** 32 * unread)


@pytest.mark.parametrize("sparse", [True, False])
def test_what_is_kept_of_a_step_goes_on_from_there(sparse: bool) -> None:
    whole, first = stepped(sparse), Vectors(sparse)
    optimizer = Optimizer(first, Plan())
    for place, rows in enumerate(ROWS):
        if place == 2:
            again = Optimizer(first, Plan())
            for parameter in first.parameters():
                again.restore(parameter, optimizer.moments(parameter))
            optimizer = again
        first.backward(rows)
        optimizer.step(place, 0.01)
    for ours, theirs in zip(first.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_moments_of_another_shape_or_kind_are_refused() -> None:
    made = Vectors(True)
    optimizer = Optimizer(made, Plan())
    for moment in (torch.zeros(9, 5), torch.zeros(9, 4).double()):
        with pytest.raises(ValueError, match=r"exp_avg must be torch\.float32 of shape"):
            optimizer.restore(made.table.weight, {"exp_avg": moment})
    with pytest.raises(ValueError, match="step must be"):
        optimizer.restore(made.table.weight, {"step": torch.zeros(2)})


@pytest.mark.parametrize("name", NETWORKS)
def test_scales_and_biases_do_not_decay(name):
    if name == "gpt2":
        pytest.importorskip("transformers")
    network = network_class(name)(48, **settings_of_size(name, 60_000, 48))
    trained = [p for p in network.parameters() if p.requires_grad]
    groups = network.parameter_groups(0.1)
    found = [p for group in groups for p in group["params"]]
    assert {id(p) for p in found} == {id(p) for p in trained}
    assert len(found) == len(trained)
    decaying = [p for group in groups if group["weight_decay"] for p in group["params"]]
    if name in ("awd-lstm", "mts-lstm"):  # as their authors' program has it
        assert len(decaying) == len(trained)
    else:
        assert 0 < len(decaying) < len(trained)
        assert min(p.dim() for p in decaying) == 2
