"""``esnlm prepare``: text to token shards."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from esnlm.text.tokenizers import Tokenizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("text", nargs="+", metavar="TEXT", help="UTF-8 files, plain or .gz, or folders of them")
    add("--out", type=Path, required=True, metavar="SHARDS", help="folder to make")
    add("--overwrite", action="store_true", help="replace shards, or an unfinished run, of others")
    add(
        "--tokenizer",
        required=True,
        metavar="gpt2|FILE|bpe:N|word:N|char",
        help="GPT-2's, a tokenizer.json, or one trained on the text, of N entries",
    )
    add(
        "--vocab",
        type=Path,
        metavar="FOLDER",
        help="where GPT-2's tokenizer.json, or vocab.json and merges.txt, are (default: they are"
        " downloaded)",
    )
    add("--lower", action="store_true", help="lower-case the text")
    add(
        "--documents",
        choices=("blank_line", "line", "file"),
        default="blank_line",
        help="what a document is (default: the lines between blank lines)",
    )
    add(
        "--sentences",
        choices=("line", "splitter"),
        default="line",
        help="a line (default), or what the library pysbd finds in it",
    )
    add("--min-length", type=int, metavar="T", help="leave out sentences of fewer tokens")
    add("--max-length", type=int, metavar="T", help="cut sentences of more, BOS and EOS counted")


def run(args: argparse.Namespace) -> int:
    """Prepare; the exit status."""
    from esnlm.text.prepare import Rules, prepare_shards

    rules = Rules(args.documents, args.sentences, args.min_length, args.max_length)
    tokenizer = _tokenizer(args.tokenizer, args.vocab)
    try:
        with _Bar() as bar:
            shards = prepare_shards(
                args.text,
                args.out,
                tokenizer,
                rules=rules,
                lower=args.lower,
                overwrite=args.overwrite,
                progress=bar.update,
            )
    except KeyboardInterrupt:
        print("esnlm: the same command goes on from here", file=sys.stderr)
        raise
    totals = shards.manifest["totals"]
    print(
        f"{args.out}: {totals['tokens']} tokens, {totals['sentences']} sentences,"
        f" {totals['documents']} documents, {totals['words']} words, {totals['unknown']} unknown,"
        f" vocabulary of {shards.n_tokens_vocab}"
    )
    return 0


class _Bar:
    """A bar of the bytes read, with tokens per second; silent where nobody watches."""

    def __enter__(self) -> "_Bar":
        from tqdm import tqdm

        self._bar = tqdm(unit="B", unit_scale=True, unit_divisor=1024, disable=None)
        self._first: tuple[float, int] | None = None
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, read: int, total: int, tokens: int) -> None:
        """Show that ``read`` of ``total`` bytes are done, which gave so many tokens."""
        now = time.perf_counter()
        self._bar.total = total
        self._bar.set_description(None if tokens else "vocabulary", refresh=False)
        if tokens and self._first is None:
            self._first = (now, tokens)
        elif tokens and self._first is not None:
            since, before = self._first
            rate = (tokens - before) / max(now - since, 1e-9)
            self._bar.set_postfix_str(f"{rate:,.0f} tokens/s", refresh=False)
        self._bar.update(read - self._bar.n)


def _tokenizer(name: str, vocab: Path | None) -> "Tokenizer | str":
    from esnlm.text.tokenizers import Tokenizer, gpt2

    if name == "gpt2":
        from esnlm.text.datasets import gpt2_files

        return gpt2(gpt2_files() if vocab is None else vocab)
    if vocab is not None:
        raise ValueError("--vocab goes with --tokenizer gpt2")
    if name == "char" or name.startswith(("bpe:", "word:", "char:")) or name == "word":
        return name
    if not Path(name).is_file():
        raise ValueError(f"--tokenizer {name}: no such file; or gpt2, bpe:N, word:N, char")
    return Tokenizer.from_file(name)
