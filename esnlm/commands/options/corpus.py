"""Options that name a corpus, text or shards, and what they hold."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from cyclopts import Parameter

from esnlm.commands.options.common import Documents, group
from esnlm.commands.options.values import integer
from esnlm.storage.atomic import put_back

if TYPE_CHECKING:
    from esnlm.text.tokenizers import Tokenizer

Corpus = Annotated[
    tuple[str, ...],
    Parameter(
        "SHARDS|TEXT",
        help="A folder that prepare wrote; or UTF-8 files, plain or .gz, or folders of them.",
    ),
]
HeldOut = Annotated[tuple[str, ...], Parameter(metavar="SHARDS|TEXT")]


@group()
class CorpusOptions:
    """Tokens and documents of a corpus that is text."""

    tokenizer: Annotated[str | None, Parameter(metavar="word|char|FILE")] = None
    """Of text: words, characters, or a tokenizer.json (default: word)."""
    vocab_size: Annotated[int | None, integer("V")] = None
    """Keep the most frequent tokens (default: all)."""
    lower: bool = False
    """Lower-case the text."""
    documents: Documents = None
    reset: Annotated[Any, Parameter(choices=("sentence", "document", "never"))] = None
    """Where the state returns to zero (default: never for characters, else sentence)."""

    def settled(self, names: Sequence[str]) -> Self:
        """The options with ``reset`` chosen; refuse those that shards leave no choice about."""
        if is_shards(names):
            if self.tokenizer or self.lower or self.vocab_size is not None or self.documents:
                raise ValueError(
                    "--tokenizer, --vocab-size, --lower and --documents are of text: shards were"
                    " cut in tokens by prepare"
                )
            if self.reset not in (None, "sentence"):
                raise ValueError(
                    f"shards hold sentences: --reset must be sentence, got {self.reset}"
                )
        reset = self.reset or ("never" if self.tokenizer == "char" else "sentence")
        return replace(self, reset=reset)

    def read(self, names: Sequence[str], tokenizer: "Tokenizer") -> Any:
        """A stream of shards, or documents of text."""
        from esnlm.text.corpus import TextCorpus
        from esnlm.text.shards import Shards

        if not is_shards(names):
            return TextCorpus(names, self.documents or _usual_split(tokenizer, self.reset))
        shards = Shards(names[0])
        if shards.tokenizer.to_json() != tokenizer.to_json():
            raise ValueError(f"the tokenizer of {names[0]} is not the one of the training text")
        return shards.stream()

    def make_tokenizer(self, names: Sequence[str]) -> "Tokenizer":
        """The tokenizer of shards, that of a file, or one trained on the text."""
        from esnlm.text.corpus import TextCorpus
        from esnlm.text.shards import Shards
        from esnlm.text.tokenizers import Tokenizer

        if is_shards(names):
            return Shards(names[0], verify=False).tokenizer
        name = self.tokenizer or "word"
        options = {"lower": self.lower, "boundaries": name == "word" or self.reset != "never"}
        if name == "word":
            return Tokenizer.train_words(TextCorpus(names, "line"), self.vocab_size, **options)
        if name == "char":
            return Tokenizer.train_characters(TextCorpus(names, "file"), self.vocab_size, **options)
        if self.lower or self.vocab_size is not None:
            raise ValueError("--lower and --vocab-size need --tokenizer word or char, not a file")
        return Tokenizer.from_file(name)


def is_shards(names: Sequence[str]) -> bool:
    """Whether the corpus is a folder of shards; more than one, or text beside it, is refused."""
    for name in names:
        put_back(Path(name))
    found = [name for name in names if name and (Path(name) / "manifest.json").is_file()]
    if found and len(found) < len(names):
        raise ValueError(f"{found[0]} is a folder of shards, the rest is text: give one of them")
    if len(found) > 1:
        raise ValueError(f"expected one folder of shards, got {len(found)}")
    return bool(found)


def model_and_stream(folder: Path, text: Sequence[str], documents: str | None) -> tuple[Any, Any]:
    """The model of a folder, and the tokens of text as it reads them."""
    from esnlm.loading import load_model
    from esnlm.text.corpus import TextCorpus

    model = load_model(folder)
    return model, model.tokenize(TextCorpus(text, split_of(model, documents)))


def split_of(model: Any, documents: str | None) -> str:
    """What a document is in text for the model, by the option or as is usual."""
    if model.tokenizer_ is None:
        raise ValueError("the model was trained on integers and has no tokenizer to read text with")
    return documents or _usual_split(model.tokenizer_, model.reset)


def _usual_split(tokenizer: "Tokenizer", reset: str) -> str:
    return "file" if tokenizer.keeps_newlines and reset == "never" else "blank_line"
