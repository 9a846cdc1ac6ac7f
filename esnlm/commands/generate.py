"""``esnlm generate``: continue a prompt."""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated

from cyclopts import Parameter

from esnlm.options.common import Device, Model
from esnlm.options.values import Seed, integer, real
from esnlm.utils.messages import log

# More than a day of drawing at ten thousand a second.
_MOST_TOKENS = 10**9


def generate(
    model: Model,
    /,
    *,
    prompt: Annotated[str, Parameter(metavar="TEXT")] = "",
    tokens: Annotated[int, integer("N")] = 200,
    temperature: Annotated[float, real("T")] = 1.0,
    top_k: Annotated[int | None, integer("K")] = None,
    top_p: Annotated[float | None, real("P")] = None,
    unknown: bool = False,
    device: Device = None,
    seed: Seed | None = None,
) -> int:
    """Write the text as it is drawn; the exit status.

    Parameters
    ----------
    prompt
        Text to continue (default: none).
    tokens
        Tokens to draw.
    temperature
        Divides log-probabilities; 0 takes the most probable token.
    top_k
        Draw among the K most probable tokens.
    top_p
        Draw among the fewest tokens that add up to P.
    unknown
        Draw the token of unknown words, too.
    seed
        The same seed, the same text.
    """
    from esnlm.loading import load_model
    from esnlm.models.sampling import SamplingOptions, text_pieces
    from esnlm.text.boundaries import framed_prefix

    if tokens > _MOST_TOKENS:
        raise ValueError(f"--tokens must be at most {_MOST_TOKENS}, got {tokens}")
    choice = SamplingOptions(temperature, top_k, top_p, seed, unknown)
    with suppress(UnicodeError):  # in the locale C, Python reads arguments as ASCII
        prompt = os.fsencode(prompt).decode()
    loaded = load_model(model, device=device)
    tokenizer = loaded.tokenizer_
    if unknown and getattr(tokenizer, "unk_id", None) is None:
        raise ValueError(f"--unknown: {model} has no token of unknown words: leave it out")
    if tokenizer is None:
        continuation = loaded.generate(tokens, prompt=_integers(prompt), choice=choice)
        pieces: Iterable[str] = (f" {token}" for token in continuation)
    else:
        before = framed_prefix(prompt, tokenizer, loaded.reset_)
        continuation = loaded.generate(tokens, prompt=prompt, choice=choice)
        pieces = text_pieces(tokenizer, before, continuation)
        read = before[1:] if before[:1].tolist() == [tokenizer.bos_id] else before
        if missing := int((read == tokenizer.unk_id).sum()):
            log.warning(
                f"the model knows {len(read) - missing} of the {len(read)} tokens of the prompt: it"
                " reads the others as the unknown token"
            )
    bare = prompt.rstrip()  # less spaces that the model does not read but writes
    if tokenizer is not None and len(tokenizer.encode(bare)) == len(tokenizer.encode(prompt)):
        prompt = bare
    print(prompt, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    return 0


def _integers(prompt: str) -> list[int]:
    try:
        return [int(token) for token in prompt.split()]
    except ValueError:
        raise ValueError(
            f"the model was trained on integers: --prompt must be integers, got {prompt!r}"
        ) from None
