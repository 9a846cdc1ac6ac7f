"""``esnlm ngram``: count the n-grams of text."""

from typing import Annotated, Literal

from esnlm.commands.options.common import NewModel, group
from esnlm.commands.options.corpus import Corpus, CorpusOptions
from esnlm.commands.options.values import integer


@group()
class NgramOptions(CorpusOptions):
    """Options of ``esnlm ngram``."""

    out: NewModel
    overwrite: bool = False
    """Replace a model that is there."""
    order: Annotated[int, integer("N")] = 5
    """Longest n-gram."""
    discounts: Literal["modified", "single"] = "modified"
    """Three an order (Chen & Goodman), or one (Kneser & Ney)."""


def ngram(text: Corpus, /, *, options: NgramOptions) -> int:
    """Count and save; the exit status."""
    from esnlm.storage.atomic import locked
    from esnlm.storage.model_folder import check_target

    with locked(options.out):
        check_target(options.out, overwrite=options.overwrite)
        return _counted(text, options)


def _counted(text: tuple[str, ...], options: NgramOptions) -> int:
    from esnlm.models.ngram import NgramLanguageModel

    options = options.settled(text)
    tokenizer = options.make_tokenizer(text)
    docs = options.read(text, tokenizer)
    model = NgramLanguageModel(options.order, tokenizer, options.reset, discounts=options.discounts)
    model.fit(docs)
    model.save(options.out)
    print(f"{options.out}: {model.n_tokens_} tokens, {model.n_parameters_} n-grams")
    return 0
