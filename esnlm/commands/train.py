"""``esnlm train``: fit a model to shards or text, in closed form and its like or by gradient."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from esnlm.models.recipes import choose_recipe
from esnlm.options.common import finish, option_name, read_in_parts, set_options, sharing, summary
from esnlm.options.corpus import Corpus, CorpusOptions
from esnlm.options.network_training import train_network
from esnlm.options.recipes import with_recipe
from esnlm.options.train import TrainOptions
from esnlm.options.training_run import TrainingRun, save_model
from esnlm.storage.atomic import locked
from esnlm.utils.messages import log, phase

if TYPE_CHECKING:
    from esnlm.models.language_model import LanguageModel
    from esnlm.runs.run_record import RunRecord
    from esnlm.text.corpus import TokenStream
    from esnlm.text.shard_parts import PartedCorpus
    from esnlm.text.source import Source
    from esnlm.training.trainer import Trainer

# What would have saved the work of an interrupted run.
_PASSES = "With --checkpoint-every MINUTES training is in passes, and --resume continues it"
_PENALTY = "No step was taken yet; --alpha A leaves out the trials that choose a penalty"


def train(text: Corpus, /, *, options: TrainOptions) -> int:
    """Fit and save; the exit status."""
    from esnlm.runs.run_record import RunRecord, check_record, data_files, record_of
    from esnlm.storage.model_folder import check_target
    from esnlm.text.source import open_source

    source = open_source(text)
    held_out = open_source(options.held_out) if options.held_out else None
    options = with_recipe(options, of_text=not source.is_shards)
    _check_log(options, record_of(options.out))
    _check_held_out(options)
    # Of several processes that torch's launcher started the first one writes.
    is_main = "WORLD_SIZE" not in os.environ or os.environ.get("RANK", "0") == "0"
    with ExitStack() as stack:
        if is_main:
            stack.enter_context(locked(options.out))
            if options.passes.log is not None:
                stack.enter_context(locked(options.passes.log))
        check_target(options.out, overwrite=options.overwrite or options.passes.resume)
        check_record(options.out)
        corpus = options.corpus.with_defaults(source)
        if options.network.model is None:
            for name in set_options(options.network):
                raise ValueError(f"{option_name(name)} needs --model NAME")
            options.check_model()
        corpus.check(source, held_out)
        record = RunRecord(seed=options.seed)
        if is_main:
            texts = {"held-out text": options.held_out}
            if not source.is_url:
                texts["training text"] = text
            # Now, as the files may change or go while the run takes its hours.
            record.add({"data": {name: data_files(each) for name, each in texts.items() if each}})
        if options.network.model is None:
            status = _train_readout(source, held_out, corpus, options, record)
        else:
            with record.phase("train"):
                status = train_network(source, held_out, corpus, options)
        if status == 0 and is_main:
            record.save(options.out)
        return status


def _check_log(options: TrainOptions, record: Path) -> None:
    """Refuse a log where the model or its record will lie."""
    if options.passes.log is not None:
        place = options.passes.log.resolve()
        if place.is_relative_to(options.out.resolve()) or place == record.resolve():
            raise ValueError(
                f"--log {options.passes.log} is where the model is written: name another file"
            )


def _check_held_out(options: TrainOptions) -> None:
    """Raise ValueError for options that do nothing where no text is held out.

    Losses of training are in the log of a network.
    """
    of_the_core = ("log", "score_every") if options.network.model is None else ()
    for name in ("held_out_tokens", *of_the_core):
        if set_options(options.passes).get(name) and not options.held_out:
            raise ValueError(
                f"{option_name(name)} needs --held-out TEXT: name a text, or leave it out"
            )


def _train_readout(
    source: "Source",
    held_out: "Source | None",
    corpus: CorpusOptions,
    options: TrainOptions,
    record: "RunRecord",
) -> int:
    """Train a readout of the core: at once, in passes, or in parts that a cluster may share."""
    import numpy as np

    from esnlm.utils.memory import peak_rss_mib

    since = time.perf_counter()
    run = None
    in_parts = source.is_url or bool(set_options(options.shared))
    if in_parts or options.in_passes(source):
        run = TrainingRun(options.out, options.passes, overwrite=options.overwrite)
    stream: TokenStream | None = None
    parts: PartedCorpus | None = None
    with record.phase("read text"), phase("reading the text"):
        if in_parts:
            parts = read_in_parts(source, options.shared)
        tokenizer = corpus.make_tokenizer(source)
        model = options.make_model(len(tokenizer), tokenizer, corpus.reset)
        model.verbose = True
        if parts is not None:
            model._use_tokenizer(tokenizer)
        else:
            stream = model._read_corpus(corpus.read(source, tokenizer))
        judge = None if held_out is None else model.tokenize(corpus.read(held_out, tokenizer))
    if stream is not None:
        advice = _PASSES if run is None else _PENALTY
        with record.phase("choose penalty"), _nothing_saved(advice):
            options.choose_penalty(model, stream, judge)
    if run is not None:
        status, trainer = _run_trainer(run, model, stream, parts, judge, options, record)
        if status:
            return status
        loss, judge = trainer.last_score, trainer.held_out
    else:
        assert stream is not None
        with record.phase("fit"), _nothing_saved(_PASSES):
            model._fit_tokens(stream, judge)
        with record.phase("save"):
            print(f"{options.out}: {_saved(model, options)}")
        with record.phase("score"):
            scores = [] if judge is None else model.log_likelihood(judge)
            loss = -float(np.concatenate(scores).mean()) if scores else None
    from esnlm.training.baselines import MOST_TOKENS, training_loss

    if parts is not None and judge is not None:
        stream = parts.stream(MOST_TOKENS)
    if stream is not None and hasattr(model, "readout_"):  # unless there was nothing to resume
        with record.phase("score training text"):
            record.add({"training_loss": training_loss(model, stream)})
    if judge is not None and loss is not None and stream is not None:
        with record.phase("score baselines"):
            _compare(loss, stream, judge, model.n_tokens_, record)
    minutes, seconds = divmod(round(time.perf_counter() - since), 60)
    print(f"{minutes}:{seconds:02} minutes, peak memory {peak_rss_mib()} MiB")
    if judge is not None:
        names = " ".join(options.held_out)
        print(f"{names} was used in training: report the perplexity of another text")
    finish(then=f"esnlm evaluate {options.out} TEXT")
    return 0


def _run_trainer(
    run: TrainingRun,
    model: "LanguageModel",
    stream: "TokenStream | None",
    parts: "PartedCorpus | None",
    held_out: "TokenStream | None",
    options: TrainOptions,
    record: "RunRecord",
) -> tuple[int, "Trainer"]:
    """Train in passes over a stream, or over parts of shards, and save; the status, who trained."""
    from esnlm.training.parts_trainer import PartsTrainer
    from esnlm.training.trainer import Trainer

    with sharing(options.shared.cluster) as reduce:
        if parts is None:
            assert stream is not None
            how = "train in passes"
            trainer = Trainer(model, stream, held_out=held_out, plan=options.plan())
        else:
            how, n_parts = "train in parts", options.shared.parts
            trainer = PartsTrainer(
                model, parts, held_out, options.plan(), n_parts=n_parts, reduce=reduce
            )
            record.add({"parts": len(trainer.parts), "corpus": parts.described()})
        with record.phase(how):
            return run.run(trainer, lambda: _saved(model, options)), trainer


@contextmanager
def _nothing_saved(advice: str) -> Iterator[None]:
    """Tell whoever interrupts the block that nothing of it is saved, and what would help."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted: nothing is saved. {advice}") from None


def _compare(
    loss: float,
    stream: "TokenStream",
    held_out: "TokenStream",
    n_tokens: int,
    record: "RunRecord",
) -> None:
    """Say how the model compares with n-grams of the same text."""
    from esnlm.training.baselines import ORDER, baselines

    with phase(f"counting {ORDER}-grams"):
        unigrams, ngrams = baselines(stream, held_out, n_tokens)
    record.add({"held_out": {"model": loss, "unigrams": unigrams, f"{ORDER}-grams": ngrams}})
    line = f"held-out perplexity {math.exp(loss):.4g}; of unigrams {math.exp(unigrams):.4g}"
    if ngrams is not None:
        line += f", of Kneser-Ney {ORDER}-grams {math.exp(ngrams):.4g}"
    print(f"{line}, of the uniform distribution {n_tokens}")
    if loss > unigrams:
        log.warning(
            "the model is worse than the words' frequencies alone: raise --alpha, or take the"
            " default readout"
        )
    elif ngrams is not None and loss > ngrams:
        log.warning(f"the {ORDER}-grams are better on this text: esnlm ngram makes a model of them")


def _saved(model: "LanguageModel", options: TrainOptions) -> str:
    """Save, print which recipe the defaults came from, and why; return a line on the model."""
    save_model(model, options.out)
    recipe, tokenizer, counts = options.recipe, model.tokenizer_, model.token_counts_
    characters = tokenizer is not None and tokenizer.has_characters
    name, why = choose_recipe(model.n_tokens_, characters=characters)
    if recipe is not None:
        name, why = recipe, "as asked" + (f"; the rest from {name}" if recipe != name else "")
    print(f"recipe {name} ({why}); --recipe takes another")
    return summary(model, 0 if counts is None else int(counts.sum()))
