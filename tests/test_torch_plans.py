"""Plans of networks: lengths that their contexts ask for, and settings that have an effect."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm.text.corpus import TokenStream  # noqa: E402
from esnlm.torch.training.plan import Plan, plan_settings  # noqa: E402
from esnlm.torch.training.trainer import NetworkTrainer  # noqa: E402

pytestmark = pytest.mark.torch

WINDOWED = ("transformer", "aerc", "char-esn")
SENTENCES = TokenStream(np.arange(90) % 11, np.array([0, 20, 60]), np.array([0, 90]))


def gpt2(context: int) -> Any:
    pytest.importorskip("transformers")
    from esnlm.torch.networks.gpt2 import GPT2

    torch.manual_seed(0)
    return GPT2(11, n_units=8, n_layers=1, n_heads=2, context=context)


@pytest.mark.parametrize("one_text", [True, False])
@pytest.mark.parametrize("model", WINDOWED)
def test_windows_are_as_long_as_the_context(model: str, one_text: bool) -> None:
    for context in (64, 32, 8):
        plan = plan_settings(model, {"context": context}, {}, one_text=one_text)
        assert (plan["batching"], plan["length"]) == ("windows", context)
    assert plan_settings(model, {}, {}, one_text=one_text)["length"] == 32
    assert plan_settings(model, {"context": 64}, {"length": 40}, one_text=one_text)["length"] == 40


@pytest.mark.parametrize(("context", "length"), [(16, 16), (512, None), (1024, None)])
def test_sentences_are_cut_where_gpt2_reads_no_further(context: int, length: int | None) -> None:
    assert plan_settings("gpt2", {"context": context}, {}).get("length") == length


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batching": "streams", "length": 8}, r"must be sentences or windows for .* 16 tokens .*"),
        ({"length": 17}, "length must be at most 16, the tokens that the network reads, got 17"),
        (
            {"batching": "windows", "length": 32},
            "length must be at most 16, the tokens that the network reads, got 32",
        ),
    ],
)
def test_more_text_than_a_network_reads_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_settings("gpt2", {"context": 16}, given)
    with pytest.raises(ValueError, match=message):
        NetworkTrainer(gpt2(16), SENTENCES, None, Plan(**given))


@pytest.mark.parametrize("plan", [None, Plan(length=16), Plan(batching="windows", length=9)])
def test_sentences_longer_than_the_context_are_trained_on(plan: Plan | None) -> None:
    trainer = NetworkTrainer(gpt2(16), SENTENCES, SENTENCES, plan)
    trainer.run()
    assert trainer.tokens == trainer.batches.n_predicted > 70
    assert NetworkTrainer(gpt2(600), SENTENCES).plan.length == 512


def test_a_length_that_is_no_default_is_refused_though_it_is_the_same_number() -> None:
    with pytest.raises(ValueError, match=r"length must be at most 16, .* got 512"):
        plan_settings("gpt2", {"context": 16}, {"length": 512})


@pytest.mark.parametrize("context", [0, "long", None])
def test_a_context_that_is_none_is_named(context: Any) -> None:
    with pytest.raises(ValueError, match="context must be an integer of at least 1, got "):
        plan_settings("transformer", {"context": context}, {})


@pytest.mark.parametrize(
    ("model", "given", "message"),
    [
        ("lstm", {"warmup": 0.1}, "warmup=0.1 has no effect, as schedule must be warm"),
        (
            "esn+mlp",
            {"warmup": 0.1, "schedule": "cosine"},
            "as schedule must be warmup-hold-cosine, got 'cosine'",
        ),
        ("awd-lstm", {"hold": 0.1}, "leave out hold, or change schedule"),
        (
            "laerc",
            {"final": 0.1, "schedule": "constant"},
            "schedule must be one of cosine, warmup-hold-cosine",
        ),
    ],
)
def test_settings_that_a_schedule_does_not_have_are_refused(
    model: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plan_settings(model, {}, given)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("laerc", {"schedule": "constant"}),  # the recipe's warm-up goes with its schedule
        ("laerc", {"warmup": 0.05, "hold": 0.2, "final": 0.0}),
        ("awd-lstm", {"final": 0.1}),
        ("lstm", {"warmup": 0, "hold": 0.0}),
    ],
)
def test_settings_of_the_schedule_and_of_the_recipe_are_taken(
    model: str, given: dict[str, Any]
) -> None:
    assert given.items() <= plan_settings(model, {}, given).items()


@pytest.mark.parametrize(
    ("n_passes", "decay_passes", "decay"),
    [
        (1, 15.0, 0.25),
        (2, 15.0, 1 / (0.01 * 15 * 2)),
        (2, 0.5, 1 / (0.01 * 20)),  # a step a pass would forget all: 20 steps at least
    ],
)
def test_decay_counts_in_passes_where_there_are_more_than_one(
    n_passes: int, decay_passes: float, decay: float
) -> None:
    from esnlm.torch.networks.lstm import LSTM

    def weights(**decays: float) -> Any:
        torch.manual_seed(0)
        plan = Plan(batch_size=2, learning_rate=0.01, n_passes=n_passes, **decays)
        trainer = NetworkTrainer(LSTM(11, n_units=4), SENTENCES, None, plan)
        assert trainer.steps_a_pass == 2
        trainer.run()
        return trainer.network.state_dict()

    ours = weights(weight_decay=0.25, decay_passes=decay_passes)
    expected = weights(weight_decay=decay)
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


def test_a_weight_decay_of_the_user_is_the_one_of_all_runs() -> None:
    assert plan_settings("esn+mlp", {}, {})["decay_passes"] == 0.46
    assert "decay_passes" not in plan_settings("esn+mlp", {}, {"weight_decay": 0.1})
    both = {"weight_decay": 0.1, "decay_passes": 2.0}
    assert both.items() <= plan_settings("esn+mlp", {}, both).items()
