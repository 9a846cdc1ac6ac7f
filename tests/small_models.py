"""Small models of every kind, trained on three sentences."""

from collections.abc import Iterable
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout, Tokenizer
from esnlm.models.interpolated import InterpolatedModel
from esnlm.text.backends import END_OF_TEXT

DOCS = ["the boy sees the dog .", "the dog sees the boys .", "boys see Mary ."] * 4
PREFIXES = ["", "the", "the boy sees", "boys"]


def reservoir_model(reset: str = "sentence", tokenizer: Any = "word") -> LanguageModel:
    reservoir = Reservoir(30, degree=4, random_state=0)
    return LanguageModel(reservoir, RidgeReadout(), tokenizer=tokenizer, reset=reset).fit(DOCS)


def ngrams(reset: str = "sentence", tokenizer: Any = "word") -> NgramLanguageModel:
    return NgramLanguageModel(order=3, tokenizer=tokenizer, reset=reset).fit(DOCS)


def network() -> Any:
    torch = pytest.importorskip("torch")
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.registry import network_class

    torch.manual_seed(0)
    tokenizer = Tokenizer.train_words(DOCS)
    kind = network_class("lstm")
    return TorchLanguageModel(kind(len(tokenizer), n_units=8).eval(), tokenizer)


def mixed() -> InterpolatedModel:
    return InterpolatedModel([reservoir_model(), ngrams()], weights=[0.4, 0.6])


def of_bytes() -> Tokenizer:
    entries = {
        piece: i for i, piece in enumerate(["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])
    }
    backend = Backend(models.BPE(entries, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, bos="</s>", eos="</s>").prepend_bos()


def as_of_gpt2(texts: Iterable[str]) -> Tokenizer:
    """Byte-level pairs, in which some characters fall apart; BOS and EOS are one token."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend, bos=END_OF_TEXT, eos=END_OF_TEXT).prepend_bos()


MODELS = [reservoir_model, ngrams, mixed, pytest.param(network, marks=pytest.mark.torch)]
