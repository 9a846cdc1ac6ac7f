"""``esnlm prepare``: text to token shards."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.commands.options.common import Texts, group
from esnlm.commands.options.values import integer

if TYPE_CHECKING:
    from esnlm.text.tokenizers import Tokenizer


@group()
class PrepareOptions:
    """Options of ``esnlm prepare``."""

    out: Annotated[Path, Parameter(metavar="SHARDS")]
    """Folder to make."""
    overwrite: bool = False
    """Replace shards, or an unfinished run, of others."""
    tokenizer: Annotated[str, Parameter(metavar="gpt2|FILE|bpe:N|word:N|char")]
    """GPT-2's, a tokenizer.json, or one trained on the text, of N entries."""
    vocab: Annotated[Path | None, Parameter(metavar="FOLDER")] = None
    """Where GPT-2's tokenizer.json, or vocab.json and merges.txt, are (default: they are
    downloaded)."""
    lower: bool = False
    """Lower-case the text."""
    documents: Literal["blank_line", "line", "file"] = "blank_line"
    """What a document is: blank_line takes the lines between blank lines."""
    sentences: Literal["line", "splitter"] = "line"
    """What a sentence is: a line, or what the library pysbd finds in it."""
    min_length: Annotated[int | None, integer("T")] = None
    """Leave out sentences of fewer tokens."""
    max_length: Annotated[int | None, integer("T")] = None
    """Cut sentences of more, BOS and EOS counted."""


def prepare(text: Texts, /, *, options: PrepareOptions) -> int:
    """Prepare; the exit status."""
    from tqdm import tqdm

    from esnlm.text.prepare import Rules, prepare

    rules = Rules(options.documents, options.sentences, options.min_length, options.max_length)
    tokenizer = _tokenizer(options.tokenizer, options.vocab)
    try:
        with tqdm(unit="B", unit_scale=True, unit_divisor=1024, disable=None) as bar:
            shards = prepare(
                text,
                options.out,
                tokenizer,
                rules=rules,
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
    return 0


def _shown_on(bar: Any) -> Callable[[int, int, int], None]:
    """A function that shows bytes read, of how many, and how many tokens they gave, on a bar."""
    first: list[tuple[float, int]] = []

    def update(read: int, total: int, tokens: int) -> None:
        now = time.perf_counter()
        bar.total = total
        bar.set_description(None if tokens else "vocabulary", refresh=False)
        if tokens and not first:
            first.append((now, tokens))
        elif tokens:
            (since, before), *_ = first
            rate = (tokens - before) / max(now - since, 1e-9)
            bar.set_postfix_str(f"{rate:,.0f} tokens/s", refresh=False)
        bar.update(read - bar.n)

    return update


def _tokenizer(name: str, vocab: Path | None) -> "Tokenizer | str":
    from esnlm.text.tokenizers import Tokenizer, gpt2

    if name == "gpt2":
        from esnlm.datasets import gpt2_files

        return gpt2(gpt2_files() if vocab is None else vocab)
    if vocab is not None:
        raise ValueError("--vocab goes with --tokenizer gpt2")
    if name in ("char", "word") or name.startswith(("bpe:", "word:", "char:")):
        return name
    if not Path(name).is_file():
        raise ValueError(f"--tokenizer {name}: no such file; or gpt2, bpe:N, word:N, char")
    return Tokenizer.from_file(name)
