"""Set documents of a corpus aside, to choose by: two texts that share no document.

    python benchmarks/split_documents.py train.txt.gz --without train-1M.txt.gz --words 60000 \\
        --out val.txt --rest train10.txt

Documents stand between blank lines. ``--out`` gets the last ones of the corpus that are not in the
text ``--without``, as many as hold at least ``--words`` words; ``--rest`` all others, in their
order. A choice by ``--out`` is then open to a model of either text.
"""

import argparse
import gzip
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from esnlm.storage.atomic import write_whole


def main() -> None:
    options = _options()
    known = set(documents(options.without)) if options.without else set()
    kept = list(documents(options.corpus))
    aside, n_words = set[int](), 0
    for place in reversed(range(len(kept))):
        if n_words >= options.words:
            break
        if kept[place] not in known:
            aside.add(place)
            n_words += len(kept[place].split())
    if n_words < options.words:
        sys.exit(f"{options.corpus} has {n_words} words in documents of its own,"
                 f" expected at least {options.words}")  # fmt: skip
    for path, wanted in ((options.out, True), (options.rest, False)):
        chosen = [text for place, text in enumerate(kept) if (place in aside) is wanted]
        write_whole(path, "\n\n".join(chosen) + "\n")
        print(f"{path}: {len(chosen)} documents, {sum(len(t.split()) for t in chosen)} words")


def documents(path: Path) -> Iterator[str]:
    """The documents of a text, plain or ``.gz``: lines between blank ones."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        for blank, lines in groupby(file, key=lambda line: not line.strip()):
            if not blank:
                yield "".join(lines).rstrip("\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, metavar="TEXT")
    parser.add_argument("--without", type=Path, metavar="TEXT", help="none of its documents")
    parser.add_argument("--words", type=int, default=60_000)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--rest", type=Path, required=True, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
