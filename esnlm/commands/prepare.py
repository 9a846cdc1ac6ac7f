"""``esnlm prepare``: text to token shards."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.options.common import Texts, finish, group
from esnlm.options.corpus import LayoutOptions, named_tokenizer
from esnlm.options.values import file_name, integer
from esnlm.utils.messages import log, progress_bar


@group()
class PrepareOptions(LayoutOptions):
    """Options of ``esnlm prepare``."""

    out: Annotated[Path, file_name("SHARDS")]
    """Folder to make."""
    overwrite: bool = False
    """Replace shards, or an unfinished run, of others."""
    tokenizer: Annotated[str, Parameter(metavar="gpt2|FILE|bpe:N|auto|word:N|wordpunct:N|char")] = (
        "auto"
    )
    """GPT-2's; a tokenizer.json, or shards or a model that hold one; or one trained on the text, of
    N entries: auto is words, and punctuation apart where it hangs on the words."""
    vocab: Annotated[Path | None, file_name("FOLDER")] = None
    """Where GPT-2's tokenizer.json, or vocab.json and merges.txt, are (default: they are
    downloaded)."""
    lower: bool = False
    """Lower-case the text."""
    documents: Literal["blank_line", "line", "file"] = "blank_line"
    """What a document is: blank_line takes the lines between blank lines."""
    sentences: Literal["line", "splitter"] = "line"
    """What a sentence is: a line, or what the library pysbd finds in it; of --unwrap, a paragraph
    is a line."""
    min_length: Annotated[int | None, integer("T")] = None
    """Leave out sentences of fewer tokens."""
    max_length: Annotated[int | None, integer("T")] = None
    """Cut sentences of more, BOS and EOS counted."""


def prepare(text: Texts, /, *, options: PrepareOptions) -> int:
    """Prepare; the exit status."""
    from esnlm.text.corpus import TextCorpus
    from esnlm.text.prepare import prepare as write_shards
    from esnlm.text.sentences import SentenceRules
    from esnlm.text.source import inspected

    rules = SentenceRules(
        documents=options.documents,
        sentences=options.sentences,
        min_length=options.min_length,
        max_length=options.max_length,
    )
    tokenizer = named_tokenizer(options.tokenizer, options.vocab)
    layout = options.layout()
    for warning in inspected(TextCorpus(text, layout=layout)):
        log.warning(warning)
    try:
        with progress_bar(True, unit="B", unit_scale=True, unit_divisor=1024) as bar:
            shards = write_shards(
                text,
                options.out,
                tokenizer,
                rules=rules,
                layout=layout,
                lower=options.lower,
                overwrite=options.overwrite,
                progress=_shown_on(bar),
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("interrupted: the same command continues from here") from None
    totals = shards.manifest["totals"]
    print(
        f"{options.out}: {totals['tokens']} tokens, {totals['sentences']} sentences,"
        f" {totals['documents']} documents, {totals['words']} words, {totals['unknown']} unknown,"
        f" vocabulary of {shards.n_tokens_vocab}"
    )
    finish(then=f"esnlm train {options.out} --held-out SHARDS --out MODEL")
    return 0


def _shown_on(bar: Any) -> Callable[[int, int, int], None]:
    """Return a function that shows on a bar the bytes read, of how many, and their tokens."""
    first: list[tuple[float, int]] = []

    def update(position: int, total: int, tokens: int) -> None:
        """Set the bar to the bytes read, and show tokens a second."""
        now = time.perf_counter()
        bar.total = total
        bar.set_description("tokens" if tokens else "vocabulary", refresh=False)
        if tokens and not first:
            first.append((now, tokens))
        elif tokens:
            (since, before), *_ = first
            rate = (tokens - before) / max(now - since, 1e-9)
            bar.set_postfix_str(f"{rate:,.0f} tokens/s", refresh=False)
        bar.update(position - bar.n)

    return update
