"""``esnlm train --model NAME``: options to a network, its plan and its training by gradient."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from esnlm.options.common import option_name, set_options, summary
from esnlm.options.corpus import CorpusOptions
from esnlm.options.train import TrainOptions
from esnlm.options.training_run import TrainingRun
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
    from esnlm.torch.device import chosen_device, joined

    of_the_core = set_options(options.readout) | set_options(options.shared)
    of_the_core |= {"features": options.features, "chunk_tokens": options.passes.chunk_tokens}
    for name, value in of_the_core.items():
        if value is not None and name not in ("option", "passes"):  # networks have their own
            if name == "readout":
                raise ValueError("networks have their own readout: drop --readout, or --model")
            raise ValueError(
                f"{option_name(name)} is only valid without --model: drop it, or --model"
                f" {options.network.model}"
            )
    device = chosen_device(options.network.device or "auto")
    _settings_of(options)
    with joined(device) as processes:
        return _train(source, held_out, corpus, options, device, processes)


def _train(
    source: "Source",
    held_out: "Source | None",
    corpus: CorpusOptions,
    options: TrainOptions,
    device: Any,
    processes: Any,
) -> int:
    """Build network, plan and trainer, train and save; return the exit status."""
    import torch

    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.registry import network_class
    from esnlm.torch.training.trainer import COLUMNS, NetworkTrainer

    running = TrainingRun(
        options.out, options.passes, COLUMNS, overwrite=options.overwrite, is_main=processes.first
    )
    home = network_class(options.network.model)
    batching = options.network.batching or home.RECIPE.get("batching", "sentences")
    if batching != "sentences" and not source.is_shards:
        if options.corpus.reset not in (None, "never"):
            raise ValueError(f"--batching {batching} reads the corpus as one text: --reset never")
        corpus = replace(corpus, reset="never")
    tokenizer = corpus.make_tokenizer(source)
    settings = _settings_of(options)
    plan = _plan(options, settings, one_text=corpus.reset == "never")
    torch.manual_seed(options.seed)
    network = home(len(tokenizer), **settings).to(device)
    reset = "never" if plan.batching != "sentences" else corpus.reset
    model = TorchLanguageModel(network, tokenizer, reset)
    stream = _stream(corpus.read(source, tokenizer), model)
    held = None if held_out is None else _stream(corpus.read(held_out, tokenizer), model)
    plan = _scored_every(plan, options.passes.score_every, stream, processes.size)
    trainer = NetworkTrainer(network, stream, held, plan, processes)

    def save() -> str:
        model.run_ = trainer.digest()
        model.save(options.out)
        return summary(model, stream.n_predicted)

    return running.run(trainer, save)


def _settings_of(options: TrainOptions) -> dict[str, Any]:
    """Return constructor arguments of the network that the options name."""
    from esnlm.torch.networks.registry import check_settings, network_class

    name = options.network.model
    known = network_class(name).arguments()
    reservoir = set_options(options.reservoir)
    chosen = set_options(options.network)
    found: dict[str, Any] = {each: chosen[each] for each in _SETTINGS if each in chosen}
    if "reservoir" in known:
        found["reservoir"] = reservoir | {"random_state": options.seed}
    else:
        found |= {each: reservoir.pop(each) for each in ("n_units",) if each in reservoir}
        for each in reservoir:
            raise ValueError(f"{option_name(each)} is no option of {name}")
    found = nested(options.readout.option, "--option", found)
    check_settings(name, found)
    return found


def _plan(options: TrainOptions, settings: dict[str, Any], *, one_text: bool) -> "Plan":
    """Return the training plan: the recipe of the network, overridden by options."""
    from esnlm.torch.training.plan import Plan, plan_settings

    apart = ("model", "device", "plan", *_SETTINGS)
    chosen = {name: v for name, v in set_options(options.network).items() if name not in apart}
    if options.readout.passes is not None:
        chosen["n_passes"] = options.readout.passes
    if options.passes.held_out_tokens is not None:
        chosen["held_out_tokens"] = options.passes.held_out_tokens
    chosen |= dict(options.network.plan)
    found = plan_settings(options.network.model, settings, chosen, one_text=one_text)
    return Plan(**({"random_state": options.seed} | found))


def _scored_every(plan: "Plan", tokens: int | None, stream: Any, n_processes: int) -> "Plan":
    """Return the plan with a held-out loss after about this number of tokens."""
    from esnlm.torch.training.batches import batches_of

    if tokens is None:
        return plan
    batches = batches_of(stream, plan, n_processes)
    steps = tokens * batches.n_batches / (batches.n_predicted * plan.accumulate)
    return replace(plan, score_every=max(1, round(steps)) if tokens > 0 else tokens)


def _stream(docs: Any, model: Any) -> Any:
    """Documents as the model reads them; shards as one text where its state never returns."""
    from esnlm.text.corpus import TokenStream

    stream = model.tokenize(docs)
    if model.reset_ == "never" and stream.starts is not None:
        return TokenStream(stream.tokens, None, stream.bounds)
    return stream
