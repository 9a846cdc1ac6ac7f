"""``esnlm train``: fit a model to shards or text, in closed form and its like or by gradient."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from esnlm.models.recipes import choose_recipe
from esnlm.options.common import finish, given, option_name, summary
from esnlm.options.corpus import Corpus, CorpusOptions, is_shards, is_url
from esnlm.options.network import train_network
from esnlm.options.recipes import with_recipe
from esnlm.options.shared import open_corpus, sharing
from esnlm.options.train import TrainOptions
from esnlm.options.training_run import Running
from esnlm.storage.atomic import locked
from esnlm.utils.messages import log
from esnlm.utils.progress import phase

if TYPE_CHECKING:
    from esnlm.models.language_model import LanguageModel
    from esnlm.runs.run_record import RunRecord
    from esnlm.text.corpus import TokenStream
    from esnlm.training.trainer import TrainingPlan


def train(text: Corpus, /, *, options: TrainOptions) -> int:
    """Fit and save; the exit status."""
    from esnlm.runs.run_record import RunRecord, check_record, data_files, record_of
    from esnlm.storage.model_folder import check_target

    options = with_recipe(options, of_text=not (is_url(text) or is_shards(text)))
    _check_log(options, record_of(options.out))
    _check_held_out(options)
    with ExitStack() as stack:
        if os.environ.get("RANK", "0") == "0":  # of several processes the first one writes
            stack.enter_context(locked(options.out))
            if options.passes.log is not None:
                stack.enter_context(locked(options.passes.log))
        check_target(options.out, overwrite=options.overwrite or options.passes.resume)
        check_record(options.out)
        corpus = options.corpus.settled(text)
        if not is_url(text):
            corpus.check_files(text, options.held_out)
        record = RunRecord(seed=options.seed)
        if options.network.model is not None:
            with record.phase("train"):
                status = train_network(text, corpus, options)
        else:
            for name in given(options.network):
                raise ValueError(f"{option_name(name)} needs --model NAME")
            status = _fit(text, corpus, options, record)
        if status == 0 and os.environ.get("RANK", "0") == "0":
            named = {"held-out text": options.held_out}
            if not is_url(text):
                named["training text"] = text
            record.add({"data": {name: data_files(each) for name, each in named.items() if each}})
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
        if given(options.passes).get(name) and not options.held_out:
            raise ValueError(
                f"{option_name(name)} needs --held-out TEXT: name a text, or leave it out"
            )


class _Outcome(NamedTuple):
    """The exit status of training, its last held-out loss, and the texts that it compares with."""

    status: int
    loss: float | None
    held: "TokenStream | None"
    stream: "TokenStream | None"
    n_tokens: int


def _fit(
    text: tuple[str, ...], corpus: CorpusOptions, options: TrainOptions, record: "RunRecord"
) -> int:
    """The core's reservoir and readout."""
    from esnlm.runs.subprocess_run import peak_rss_mib

    since = time.perf_counter()
    options.check_model()
    in_parts = given(options.shared) or is_url(text)
    fit = _fit_in_parts if in_parts else _fit_alone
    status, loss, held, stream, n_tokens = fit(text, corpus, options, record)
    if status:
        return status
    if held is not None and loss is not None and stream is not None:
        with record.phase("score baselines"):
            _compare(loss, stream, held, n_tokens, record)
    minutes, seconds = divmod(round(time.perf_counter() - since), 60)
    print(f"{minutes}:{seconds:02} minutes, peak memory {peak_rss_mib()} MiB")
    if held is not None:
        named = " ".join(options.held_out)
        print(f"{named} was used in training: report the perplexity of another text")
    finish(then=f"esnlm evaluate {options.out} TEXT")
    return 0


def _fit_alone(
    text: tuple[str, ...], corpus: CorpusOptions, options: TrainOptions, record: "RunRecord"
) -> _Outcome:
    """In this process: at once, or in passes."""
    running = None
    if options.in_passes(text):
        running = Running(options.out, options.passes, overwrite=options.overwrite)
    plan = options.plan()
    with record.phase("read text"), phase("reading the text"):
        tokenizer = corpus.make_tokenizer(text)
        model = options.make_model(len(tokenizer), tokenizer, corpus.reset)
        model.verbose = True
        stream = model._read_corpus(corpus.read(text, tokenizer))
        named = options.held_out
        held = model.tokenize(corpus.read(named, tokenizer)) if named else None
    if running is not None:
        with (
            record.phase("choose penalty"),
            _nothing_kept(
                "No step was taken yet; --alpha A leaves out the trials that choose a penalty"
            ),
        ):
            options.choose_penalty(model, stream, held)
        status, loss, held = _in_passes(model, stream, held, running, plan, record, options.recipe)
        return _Outcome(status, loss, held, stream, model.n_tokens_)
    with _nothing_kept(
        "With --checkpoint-every MINUTES training is in passes, and --resume continues it"
    ):
        with record.phase("choose penalty"):
            options.choose_penalty(model, stream, held)
        with record.phase("fit"):
            model.fit(stream, held_out=held)
    with record.phase("save"):
        model.save(options.out)
    print(f"{options.out}: {_summary(model, options.recipe)}")
    import numpy as np

    with record.phase("score"):
        loss = None if held is None else -float(np.concatenate(model.log_likelihood(held)).mean())
    return _Outcome(0, loss, held, stream, model.n_tokens_)


@contextmanager
def _nothing_kept(advice: str) -> Iterator[None]:
    """Tell whoever interrupts the block that nothing of it is kept, and what would help."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted: nothing is saved. {advice}") from None


def _fit_in_parts(
    text: tuple[str, ...], corpus: CorpusOptions, options: TrainOptions, record: "RunRecord"
) -> _Outcome:
    """In parts that a cluster shares, or this process takes one after the other."""
    from esnlm.training.baselines import MOST_TOKENS
    from esnlm.training.parts_trainer import PartsTrainer

    running = Running(options.out, options.passes, overwrite=options.overwrite)
    with record.phase("read text"), phase("reading the text"):
        parted = open_corpus(text, options.shared)
        model = options.make_model(len(parted.tokenizer), parted.tokenizer, corpus.reset)
        model._use_tokenizer(parted.tokenizer)
        named = options.held_out
        held = model.tokenize(corpus.read(named, parted.tokenizer)) if named else None

    def save() -> str:
        model.save(options.out)
        return _summary(model, options.recipe)

    with sharing(options.shared.cluster) as reduce:
        trainer = PartsTrainer(
            model, parted, held, options.plan(), n_parts=options.shared.parts, reduce=reduce
        )
        record.add({"parts": len(trainer.parts), "corpus": parted.described()})
        with record.phase("train in parts"):
            status = running.run(trainer, save)
    stream = parted.stream(MOST_TOKENS)
    return _Outcome(status, trainer.last_score, trainer.held_out, stream, model.n_tokens_)


def _in_passes(
    model: "LanguageModel",
    stream: "TokenStream",
    held: "TokenStream | None",
    running: Running,
    plan: "TrainingPlan",
    record: "RunRecord",
    recipe: str | None,
) -> tuple[int, float | None, "TokenStream | None"]:
    """The exit status, the last held-out loss, and the held-out tokens that it is of."""
    from esnlm.training.trainer import Trainer

    def save() -> str:
        model.save(running.out)
        return _summary(model, recipe)

    trainer = Trainer(model, stream, held_out=held, plan=plan)
    with record.phase("train in passes"):
        status = running.run(trainer, save)
    return status, trainer.last_score, trainer.held_out


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


def _summary(model: "LanguageModel", recipe: str | None) -> str:
    """Print which recipe the defaults came from, and why; return a line on the model."""
    tokenizer, counts = model.tokenizer_, model.token_counts_
    characters = tokenizer is not None and tokenizer.has_characters
    name, why = choose_recipe(model.n_tokens_, characters=characters)
    if recipe is not None:
        name, why = recipe, "as asked" + (f"; the rest from {name}" if recipe != name else "")
    print(f"recipe {name} ({why}); --recipe takes another")
    return summary(model, 0 if counts is None else int(counts.sum()))
