"""``esnlm train --model NAME``: a network of `esnlm.torch`, trained by gradient."""

import argparse
from typing import TYPE_CHECKING, Any

from esnlm.commands.options.corpus import corpus_documents, corpus_tokenizer, is_shards
from esnlm.commands.options.values import pair

if TYPE_CHECKING:
    from esnlm.torch.training.plan import Plan

#: Options of the reservoir -> parameters of `esnlm.Reservoir`.
RESERVOIR = {
    "units": "n_units", "degree": "degree", "topology": "topology", "leak_rate": "leak_rate",
    "spectral_radius": "spectral_radius", "input_scaling": "input_scaling",
    "input_degree": "input_degree", "bias_scaling": "bias_scaling", "activation": "activation",
}  # fmt: skip
#: Options that a network's constructor may have, and settings of `esnlm.torch.training.plan.Plan`.
_SETTINGS = {"units": "n_units", "rank": "rank", "dropout": "dropout"}
_PLAN = (
    "epochs", "batch_size", "learning_rate", "weight_decay", "schedule", "clip", "accumulate",
    "bf16", "batching", "length", "pool", "held_out_tokens",
)  # fmt: skip
_OF_NETWORKS = ("device", "rank", "dropout", "plan", *_PLAN[:-1])
_OF_THE_CORE = (
    "readout", "factors", "direct", "features", "alpha", "passes", "experts", "classes",
    "chunk_tokens",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options, none of which has a default: what is not given is the network's own."""
    group = parser.add_argument_group(
        "training by gradient",
        "With --model NAME a network of the extra esnlm[torch] is trained: esn, esn+i, lstm, gpt2,"
        " mts-lstm, aerc, laerc, transformer and others, in the settings of its paper unless"
        " options say otherwise. --option NAME=VALUE sets any other parameter of the network, and"
        " reservoir options are those of esn and esn+i. Several processes: torchrun"
        " --nproc-per-node=N -m -- esnlm train ...",
    )
    add = group.add_argument
    add("--model", metavar="NAME", help="the network; without it the core's reservoir and readout")
    add("--device", metavar="NAME", help="auto (default), cpu, cuda or cuda:N")
    add("--rank", type=int, metavar="R", help="of the output matrix (esn: 512)")
    add("--dropout", type=float, metavar="P", help="share of units left out in training")
    add("--epochs", type=int, metavar="E", help="passes over the corpus (default: 1)")
    add("--batch-size", type=int, metavar="B", help="sentences of a step (default: 32)")
    add("--learning-rate", type=float, metavar="RATE", help="of AdamW (default: 0.001)")
    add("--weight-decay", type=float, metavar="D", help="of AdamW (default: 0.01)")
    add("--schedule", metavar="NAME", help="constant, cosine or warmup-hold-cosine")
    add("--clip", type=float, metavar="NORM", help="largest norm of a gradient (default: any)")
    add("--accumulate", type=int, metavar="K", help="batches whose gradients make a step")
    add("--bf16", action="store_true", default=None, help="compute in bfloat16; states in float32")
    add("--batching", metavar="NAME", help="sentences, streams or windows of the text")
    add("--length", type=int, metavar="T", help="most tokens of a sentence, stream or window")
    add(
        "--pool",
        type=int,
        metavar="K",
        help="sort sentences by length within K batches, which saves padding",
    )
    add(
        "--plan",
        type=pair,
        action="append",
        metavar="NAME=VALUE",
        help="any other setting of the training plan",
    )


def check_absent(args: argparse.Namespace) -> None:
    """Refuse options that need --model, where it is not given."""
    for name in _OF_NETWORKS:
        if getattr(args, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} needs --model NAME")


def run(args: argparse.Namespace) -> int:
    """Train and save; the exit status."""
    from esnlm.torch.optional import require_torch

    require_torch(f"--model {args.model}")
    from esnlm.torch.device import chosen_device
    from esnlm.torch.training.distributed import joined, local_rank

    for name in _OF_THE_CORE:
        if getattr(args, name, None) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} is no option of --model {args.model}")
    device = chosen_device(args.device or "auto", local_rank())
    _settings_of(args)
    with joined(device) as processes:
        return _train(args, device, processes)


def _train(args: argparse.Namespace, device: Any, processes: Any) -> int:
    import torch

    from esnlm.commands.console.training_run import Running
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.registry import network_class
    from esnlm.torch.training.trainer import COLUMNS, NetworkTrainer

    running = Running.prepared(args, COLUMNS, speaks=processes.first)
    _settle_batching(args)
    tokenizer = corpus_tokenizer(args)
    settings = _settings_of(args)
    plan = _plan(args, settings)
    torch.manual_seed(args.seed)
    network = network_class(args.model)(len(tokenizer), **settings).to(device)
    reset = "never" if plan.batching != "sentences" else args.reset
    model = TorchLanguageModel(network, tokenizer, reset)
    stream, held = (
        _stream(corpus_documents(names, tokenizer, args), model) if names else None
        for names in (args.text, args.held_out)
    )
    assert stream is not None
    plan = _scored_every(plan, args.score_every, stream, processes.size)
    trainer = NetworkTrainer(network, stream, held, plan, processes)

    def save() -> str:
        model.run_ = trainer.digest()
        model.save(args.out)
        return f"{model.n_tokens_} tokens, {model.n_parameters_} trained parameters"

    return running.run(trainer, save)


def _settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """Constructor arguments of the network that the options name."""
    from esnlm.torch.networks.registry import check_settings, network_class

    known = network_class(args.model).arguments()
    found: dict[str, Any] = {}
    if "reservoir" in known:
        given = {name: getattr(args, option) for option, name in RESERVOIR.items()}
        reservoir = {name: value for name, value in given.items() if value is not None}
        found["reservoir"] = reservoir | {"random_state": args.seed}
    for option, name in _SETTINGS.items():
        value = getattr(args, option)
        if value is None or (option == "units" and "reservoir" in known):
            continue
        found[name] = value
    if "reservoir" not in known:
        for option in RESERVOIR:
            if option != "units" and getattr(args, option) is not None:
                raise ValueError(f"--{option.replace('_', '-')} is no option of {args.model}")
    for name, value in args.option:
        first, _, second = name.partition(".")
        if second:
            found.setdefault(first, {})[second] = value
        else:
            found[name] = value
    check_settings(args.model, found)
    return found


def _settle_batching(args: argparse.Namespace) -> None:
    """Read text as one where it is trained as one."""
    from esnlm.torch.networks.registry import network_class

    recipe = network_class(args.model).RECIPE
    batching = args.batching or recipe.get("batching", "sentences")
    if batching == "sentences" or is_shards(args.text):
        return
    if args.reset not in (None, "never") and args.reset_given:
        raise ValueError(f"--batching {batching} reads the corpus as one text: --reset never")
    args.reset = "never"


def _plan(args: argparse.Namespace, settings: dict[str, Any]) -> "Plan":
    from esnlm.torch.training.plan import Plan, plan_settings

    given = {name: getattr(args, name) for name in _PLAN if getattr(args, name) is not None}
    given |= dict(args.plan or [])
    one_text = args.reset == "never"
    chosen = plan_settings(args.model, settings, given, one_text=one_text)
    return Plan(**({"seed": args.seed} | chosen))


def _scored_every(plan: "Plan", tokens: int | None, stream: Any, n_processes: int) -> "Plan":
    """The plan with a held-out loss after about so many tokens."""
    from dataclasses import replace

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
    if model.reset == "never" and stream.starts is not None:
        return TokenStream(stream.tokens, None, stream.bounds)
    return stream
