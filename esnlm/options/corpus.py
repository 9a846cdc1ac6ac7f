"""Options that name a corpus, text or shards, and what they hold."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from cyclopts import Parameter

from esnlm.options.common import Documents, group
from esnlm.options.values import integer
from esnlm.utils.messages import log

if TYPE_CHECKING:
    from esnlm.text.layout import TextLayout
    from esnlm.text.source import Source
    from esnlm.text.tokenizers import Tokenizer

# Names of tokenizers that are trained on the text, before a colon and a size.
_TRAINED = ("auto", "word", "wordpunct", "char", "bpe")
Corpus = Annotated[
    tuple[str, ...],
    Parameter(
        "SHARDS|TEXT",
        help="A text to train on, such as book.txt. UTF-8 files, plain or .gz, or folders of them;"
        " or a folder that prepare wrote.",
    ),
]
HeldOut = Annotated[tuple[str, ...], Parameter(metavar="SHARDS|TEXT")]


@group()
class LayoutOptions:
    """How text files are laid out, and what of that is undone."""

    encoding: Annotated[str | None, Parameter(metavar="NAME")] = None
    """Encoding of text files, such as utf-16, cp1252 or latin-1 (default: utf-8)."""
    strip_gutenberg: bool = False
    """Leave out what Project Gutenberg puts before and after a book."""
    unwrap: bool = False
    """Join the lines of each paragraph: text is wrapped at a column, with blank lines between
    paragraphs."""

    def layout(self) -> "TextLayout":
        """Return the layout of the files."""
        from esnlm.text.layout import TextLayout

        return TextLayout(
            encoding=self.encoding or "utf-8",
            strip_gutenberg=self.strip_gutenberg,
            unwrap=self.unwrap,
        )


@group()
class CorpusOptions(LayoutOptions):
    """Tokens and documents of a corpus that is text."""

    tokenizer: Annotated[
        str | None, Parameter(metavar="auto|word|wordpunct|char|bpe:N|gpt2|FILE")
    ] = None
    """word: what stands between spaces; wordpunct: words and punctuation apart; auto (default): the
    one that suits the text; char: characters; bpe:N: sub-words; gpt2: GPT-2's; or a tokenizer.json,
    or shards or a model that hold one."""
    vocab_size: Annotated[int | None, integer("V")] = None
    """Keep the most frequent tokens (default: all)."""
    lower: bool = False
    """Lower-case the text."""
    documents: Documents = None
    reset: Annotated[Any, Parameter(choices=("sentence", "document", "never"))] = None
    """Where the state returns to zero (default: never for characters of text, else sentence; shards
    hold sentences)."""

    def with_defaults(self, source: "Source") -> Self:
        """Return the options with ``reset`` chosen; refuse those that shards leave no choice of."""
        if source.is_shards:
            of_text = self.tokenizer or self.lower or self.vocab_size is not None or self.documents
            if of_text or self.layout().changed():
                raise ValueError(
                    "--tokenizer, --vocab-size, --encoding, --strip-gutenberg, --unwrap, --lower"
                    " and --documents are of text: shards were cut in tokens by prepare"
                )
            if self.reset not in (None, "sentence"):
                raise ValueError(
                    f"shards hold sentences: --reset must be sentence, got {self.reset}"
                )
        characters = (self.tokenizer or "").partition(":")[0] == "char"
        reset = self.reset or ("never" if characters else "sentence")
        return replace(self, reset=reset)

    def check(self, source: "Source", held_out: "Source | None" = None) -> None:
        """Refuse a file given twice; warn of what looks as if an option had been forgotten."""
        for warning in source.warnings(held_out, self.layout()):
            log.warning(warning)

    def read(self, source: "Source", tokenizer: "Tokenizer") -> Any:
        """Return the stream of shards, or the documents of text."""
        if source.is_shards:
            return source.stream(tokenizer)
        split = self.documents or _usual_split(tokenizer, self.reset)
        return source.documents(split, self.layout())

    def make_tokenizer(self, source: "Source") -> "Tokenizer":
        """Return the tokenizer of shards, that of a file, or one trained on the text."""
        from esnlm.text.named_tokenizers import trained

        if source.tokenizer is not None:
            return source.tokenizer
        name = self.tokenizer or "auto"
        _check_name(name)
        check_documents(self.documents, self.reset)
        if (self.lower or self.vocab_size is not None) and not is_trained(name):
            raise ValueError(
                f"--lower and --vocab-size need a tokenizer that is trained on the text, not {name}"
            )
        choice = named_tokenizer(name)
        if not isinstance(choice, str):
            return choice
        kind, colon, _ = choice.partition(":")
        if self.vocab_size is not None:
            if colon:
                raise ValueError(f"--tokenizer {choice} has a size: leave out --vocab-size")
            choice += f":{self.vocab_size}"
        lines = source.documents("file" if kind == "char" else "line", self.layout())
        boundaries = kind != "char" or self.reset != "never"
        tokenizer = trained(choice, lines, lower=self.lower, boundaries=boundaries)
        if kind == "auto" and tokenizer.parts_punctuation:
            log.info(
                "words and punctuation are tokens apart (--tokenizer word: what stands between"
                " spaces)"
            )
        return tokenizer


def check_documents(documents: str | None, reset: str) -> None:
    """Refuse to name what a document is where sentences are read one by one."""
    if documents and reset == "sentence":
        raise ValueError(
            "--documents has no effect, as sentences are read one by one: leave it out, or train"
            " with --reset document or never"
        )


def is_trained(name: str) -> bool:
    """Whether the name stands for a tokenizer that is trained on the text."""
    return name.partition(":")[0] in _TRAINED


def _check_name(name: str) -> None:
    """Raise ValueError where nothing has the name of a tokenizer."""
    if is_trained(name) or name == "gpt2" or Path(name).exists():
        return
    from esnlm.utils.validation import did_you_mean

    hint = did_you_mean(name.partition(":")[0], [*_TRAINED, "gpt2"])
    raise ValueError(
        f"no such tokenizer or file: {name}{hint} (expected {', '.join(_TRAINED)}, gpt2 or a"
        " tokenizer.json)"
    )


def named_tokenizer(name: str, vocab: Path | None = None) -> "Tokenizer | str":
    """GPT-2's tokenizer, that of a file or folder, or the name of one to be trained on the text.

    ``vocab``: where GPT-2's files lie, if not in the cache.
    """
    from esnlm.text.named_tokenizers import gpt2, parsed
    from esnlm.text.tokenizers import Tokenizer

    if name == "gpt2":
        from esnlm.datasets import gpt2_files

        try:
            return gpt2(gpt2_files() if vocab is None else vocab)
        except OSError as error:
            advice = "as in esnlm prepare --tokenizer gpt2 --vocab FOLDER"
            raise OSError(f"{error}, {advice}") from error
    if vocab is not None:
        raise ValueError("--vocab goes with --tokenizer gpt2")
    if is_trained(name):
        parsed(name)
        return name
    _check_name(name)
    path = Path(name)
    tokenizer = _saved_tokenizer(path) if path.is_dir() else Tokenizer.from_file(path)
    if tokenizer.bos is tokenizer.eos is None and not tokenizer.has_characters:
        log.warning(
            f"{name} names no tokens that begin and end sentences, so neither is predicted: put its"
            " tokenizer_config.json beside it"
        )
    return tokenizer


def _saved_tokenizer(folder: Path) -> "Tokenizer":
    """Return the tokenizer of shards or of a model, with its boundaries; or of another folder."""
    from esnlm.storage.json_files import read_text
    from esnlm.storage.model_folder import unchecked_config
    from esnlm.text.shards import Shards
    from esnlm.text.source import holds_shards
    from esnlm.text.tokenizers import Tokenizer

    if holds_shards(folder):
        return Shards(folder, verify=False).tokenizer
    about = unchecked_config(folder).get("tokenizer")
    if isinstance(about, dict) and about.keys() == {"bos", "eos"}:
        return Tokenizer.from_json(read_text(folder / "tokenizer.json"), **about)
    if not (folder / "tokenizer.json").is_file():
        raise ValueError(
            f"{folder} holds no tokenizer.json, which save_pretrained of AutoTokenizer writes, in"
            " transformers, of other files of tokenizers"
        )
    return Tokenizer.from_file(folder / "tokenizer.json")


def model_and_stream(folder: Path, text: Sequence[str], documents: str | None) -> tuple[Any, Any]:
    """Return the model of a folder, and the tokens of text as it reads them."""
    from esnlm.loading import load_model
    from esnlm.text.corpus import TextCorpus

    model = load_model(folder)
    check_documents(documents, model.reset_)
    return model, model.tokenize(TextCorpus(text, split_of(model, documents)))


def split_of(model: Any, documents: str | None) -> str:
    """Return what a document is in text for the model, by the option or as is usual."""
    if model.tokenizer_ is None:
        raise ValueError("the model was trained on integers and has no tokenizer to read text with")
    return documents or _usual_split(model.tokenizer_, model.reset_)


def _usual_split(tokenizer: "Tokenizer", reset: str) -> str:
    return "file" if tokenizer.keeps_newlines and reset == "never" else "blank_line"
