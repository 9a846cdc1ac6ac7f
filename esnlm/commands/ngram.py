"""``esnlm ngram``: count the n-grams of text."""

from typing import Annotated, Literal

from esnlm.options.common import (
    NewModel,
    SharedOptions,
    finish,
    group,
    read_in_parts,
    set_options,
    sharing,
)
from esnlm.options.corpus import Corpus, CorpusOptions
from esnlm.options.values import integer
from esnlm.storage.atomic import locked
from esnlm.utils.messages import phase


@group()
class NgramOptions(CorpusOptions):
    """Options of ``esnlm ngram``."""

    out: NewModel
    overwrite: bool = False
    """Replace an existing model."""
    order: Annotated[int, integer("N")] = 5
    """Longest n-gram."""
    discounts: Literal["modified", "single"] = "modified"
    """Three an order (Chen & Goodman), or one (Kneser & Ney)."""
    shared: SharedOptions = SharedOptions()


def ngram(text: Corpus, /, *, options: NgramOptions) -> int:
    """Count and save; the exit status."""
    from esnlm.models.ngram import NgramLanguageModel
    from esnlm.storage.model_folder import check_target
    from esnlm.text.source import open_source

    source = open_source(text)
    with locked(options.out):
        check_target(options.out, overwrite=options.overwrite)
        corpus, parted = options.with_defaults(source), None
        if set_options(options.shared) or source.is_url:
            parted = read_in_parts(source, options.shared)
        else:
            corpus.check(source)
        tokenizer = corpus.make_tokenizer(source)
        order, discounts = options.order, options.discounts
        model = NgramLanguageModel(
            order=order, tokenizer=tokenizer, reset=corpus.reset, discounts=discounts
        )
        if parted is None:
            with phase("counting n-grams"):
                model.fit(corpus.read(source, tokenizer))
        else:
            with sharing(options.shared.cluster) as reduce, phase("counting n-grams"):
                model.fit_parts(parted, n_parts=options.shared.parts, reduce=reduce)
        model.save(options.out)
    print(f"{options.out}: {model.n_tokens_} tokens, {model.n_parameters_} n-grams")
    finish(then=f"esnlm evaluate MODEL TEXT --interpolate {options.out}")
    return 0
