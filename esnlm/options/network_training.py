"""``esnlm train --model NAME``: options to a network, its plan and its training by gradient."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from esnlm.options.common import option_name, set_options, summary
from esnlm.options.corpus import CorpusOptions
from esnlm.options.train import TrainOptions
from esnlm.options.training_run import TrainingRun, save_model
from esnlm.options.values import nested
from esnlm.torch import require_torch

if TYPE_CHECKING:
    from esnlm.text.source import Source
    from esnlm.torch.training.plan import Plan

#: Options that a network's constructor may have; the others are of the plan of its training.
_SETTINGS = ("rank", "dropout")


def train_network(
    source: "Source", held_out: "Source | None", corpus: CorpusOptions, options: TrainOptions
) -> int:
    """Train and save; return the exit status. ``corpus`` has its defaults."""
    require_torch(f"--model {options.network.model}")
    import torch

    from esnlm.torch.device import chosen_device, joined
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.registry import network_class
    from esnlm.torch.training.batches import batches_of
    from esnlm.torch.training.trainer import COLUMNS, NetworkTrainer

    _check_readout(options)
    device = chosen_device(options.network.device or "auto")
    settings = _settings_of(options)
    kind = network_class(options.network.model)
    with joined(device) as processes:
        running = TrainingRun(
            options.out, options.passes, COLUMNS, overwrite=options.overwrite,
            is_main=processes.first,
        )  # fmt: skip
        batching = options.network.batching or kind.RECIPE.get("batching", "sentences")
        if batching != "sentences" and not source.is_shards:
            if options.corpus.reset not in (None, "never"):
                raise ValueError(
                    f"--batching {batching} reads the corpus as one text: --reset never"
                )
            corpus = replace(corpus, reset="never")
        tokenizer = corpus.make_tokenizer(source)
        plan = _plan(options, settings, one_text=corpus.reset == "never")
        torch.manual_seed(options.seed)
        network = kind(len(tokenizer), **settings).to(device)
        reset = "never" if plan.batching != "sentences" else corpus.reset
        model = TorchLanguageModel(network, tokenizer, reset)
        stream = _stream(corpus.read(source, tokenizer), model)
        validation = None if held_out is None else _stream(corpus.read(held_out, tokenizer), model)
        if (every := options.passes.score_every) is not None:
            batches = batches_of(stream, plan, processes.size)
            steps = every * batches.n_batches / (batches.n_predicted * plan.accumulate)
            plan = replace(plan, score_every=max(1, round(steps)) if every > 0 else every)
        trainer = NetworkTrainer(network, stream, validation, plan, processes)

        def save() -> str:
            model.run_ = trainer.digest()
            save_model(model, options.out)
            return summary(model, stream.n_predicted)

        return running.run(trainer, save)


def _check_readout(options: TrainOptions) -> None:
    """Raise ValueError for options of the core's readouts, which networks do not have."""
    core_options = set_options(options.readout) | set_options(options.shared)
    core_options |= {"features": options.features, "chunk_tokens": options.passes.chunk_tokens}
    for name, value in core_options.items():
        if value is not None and name not in ("option", "passes"):  # networks have their own
            if name == "readout":
                raise ValueError("networks have their own readout: drop --readout, or --model")
            raise ValueError(
                f"{option_name(name)} is only valid without --model: drop it, or --model"
                f" {options.network.model}"
            )


def _settings_of(options: TrainOptions) -> dict[str, Any]:
    """Return constructor arguments of the network that the options name."""
    from esnlm.torch.networks.registry import check_settings, network_class

    name = options.network.model
    reservoir, network = set_options(options.reservoir), set_options(options.network)
    settings: dict[str, Any] = {each: network[each] for each in _SETTINGS if each in network}
    if "reservoir" in network_class(name).arguments():
        settings["reservoir"] = reservoir | {"random_state": options.seed}
    else:
        if "n_units" in reservoir:
            settings["n_units"] = reservoir.pop("n_units")
        for each in reservoir:
            raise ValueError(
                f"{option_name(each)} is only valid with a reservoir, got --model {name}"
            )
    settings = nested(options.readout.option, "--option", settings)
    check_settings(name, settings)
    return settings


def _plan(options: TrainOptions, settings: dict[str, Any], *, one_text: bool) -> "Plan":
    """Return the training plan: the recipe of the network, overridden by options."""
    from esnlm.torch.training.plan import Plan, plan_settings

    apart = ("model", "device", "plan", *_SETTINGS)
    values = {name: v for name, v in set_options(options.network).items() if name not in apart}
    if options.readout.passes is not None:
        values["n_passes"] = options.readout.passes
    if options.passes.held_out_tokens is not None:
        values["held_out_tokens"] = options.passes.held_out_tokens
    values |= dict(options.network.plan)
    plan = plan_settings(options.network.model, settings, values, one_text=one_text)
    return Plan(**{"random_state": options.seed} | plan)


def _stream(docs: Any, model: Any) -> Any:
    """Documents as the model reads them; shards as one text where its state never returns."""
    from esnlm.text.corpus import TokenStream

    stream = model.tokenize(docs)
    if model.reset_ == "never" and stream.starts is not None:
        return TokenStream(stream.tokens, None, stream.bounds)
    return stream
