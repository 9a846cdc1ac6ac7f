"""``esnlm train``: fit a model to shards or text, in closed form and its like or by gradient."""

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from esnlm.commands.console.training_run import PassOptions, Running
from esnlm.commands.options.common import given
from esnlm.commands.options.corpus import Corpus, CorpusOptions, is_shards
from esnlm.commands.options.model import (
    make_features,
    make_readout,
    make_reservoir,
    settled,
)
from esnlm.commands.options.train import TrainOptions, check_absent
from esnlm.commands.train_network import train_network

if TYPE_CHECKING:
    from esnlm.models.reservoir import LanguageModel


def train(text: Corpus, /, *, options: TrainOptions) -> int:
    """Fit and save; the exit status."""
    from esnlm.storage.atomic import locked
    from esnlm.storage.model_folder import check_target

    with ExitStack() as stack:
        if os.environ.get("RANK", "0") == "0":  # of several processes the first one writes
            stack.enter_context(locked(options.out))
            if options.passes.log is not None:
                stack.enter_context(locked(options.passes.log))
        check_target(options.out, overwrite=options.overwrite or options.passes.resume)
        corpus = options.corpus.settled(text)
        if options.network.model is not None:
            return train_network(text, corpus, options)
        check_absent(options.network)
        return _fit(text, corpus, options)


def _fit(text: tuple[str, ...], corpus: CorpusOptions, options: TrainOptions) -> int:
    """The core's reservoir and readout."""
    from esnlm import LanguageModel

    seed = options.seed
    # What makes no parts is refused before any text is read.
    make_reservoir(options.reservoir, seed)
    make_features(options.features, seed)
    if options.readout.readout is not None:
        make_readout(options.readout, seed)
    tokenizer = corpus.make_tokenizer(text)
    reservoir, readout, features = settled(
        options.reservoir, options.readout, options.features, len(tokenizer)
    )
    model = LanguageModel(
        make_reservoir(reservoir, seed),
        make_readout(readout, seed),
        tokenizer,
        make_features(features, seed),
        corpus.reset,
        random_state=seed,
        verbose=True,
    )
    docs = corpus.read(text, tokenizer)
    held_out = corpus.read(options.held_out, tokenizer) if options.held_out else None
    if is_shards(text) or options.passes != PassOptions():
        return _in_passes(model, docs, held_out, options)
    model.fit(docs, held_out=held_out)
    model.save(options.out)
    print(f"{options.out}: {_summary(model)}")
    return 0


def _in_passes(model: "LanguageModel", docs: Any, held_out: Any, options: TrainOptions) -> int:
    from esnlm.models.training import Trainer, TrainingPlan

    names = "chunk_tokens", "score_every", "held_out_tokens"
    chosen = {name: value for name, value in given(options.passes).items() if name in names}
    plan = TrainingPlan(seed=options.seed, **chosen)
    running = Running.prepared(options.out, options.passes, overwrite=options.overwrite)
    stream = model.read(docs)
    held = None if held_out is None else model.tokenize(held_out)

    def save() -> str:
        model.save(options.out)
        return _summary(model)

    return running.run(Trainer(model, stream, held, plan), save)


def _summary(model: "LanguageModel") -> str:
    return f"{model.n_tokens_} tokens, {model.n_parameters_} trained parameters"
