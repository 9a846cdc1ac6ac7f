"""Exported models of every kind, and the steps of BabyLM's evaluation pipeline with them."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from interop_cases import fitted, minimal_pairs, sentence_scores, sentences, write_blimp
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout
from esnlm.interop.huggingface import export_model
from esnlm.loading import load_model
from esnlm.models.arpa import write_arpa
from esnlm.text.tokenizers import Tokenizer

torch = pytest.importorskip("torch", reason="needs the hf extra")
transformers = pytest.importorskip("transformers", reason="needs the hf extra")
pytestmark = [
    pytest.mark.hf,
    pytest.mark.usefixtures("offline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers"),
]

TEXTS = [text for pairs in minimal_pairs(6).values() for pair in pairs for text in pair]


def network(name: str, **settings: Any):
    """An untrained network: its scores are as hard to compute as those of a trained one."""

    def make():
        from esnlm.torch.language_model import TorchLanguageModel
        from esnlm.torch.networks.registry import network_class

        torch.manual_seed(0)
        tokenizer = Tokenizer.train_words(sentences())
        made = network_class(name)(len(tokenizer), **settings)
        stream = LanguageModel(Reservoir(5, random_state=0), RidgeReadout(), tokenizer=tokenizer)
        made.survey(stream.fit(sentences()).tokenize(sentences()))
        with torch.no_grad():  # untrained outputs hardly differ
            for parameter in made.trained_parameters().values():
                parameter += 0.3 * torch.randn_like(parameter)
        return TorchLanguageModel(made.eval(), tokenizer)

    return make


def ngrams(order: int):
    return lambda: NgramLanguageModel(order, "word").fit(sentences())


MLP = {"width": 12, "n_hidden": 9, "n_heads": 3, "n_features": 4, "reservoir": {"n_units": 20}}
MODELS = {
    "lstm": network("lstm", n_units=12, n_layers=2),
    "lstm, two levels": network("lstm", n_units=12, two_level=True),
    "esn": network("esn", reservoir={"n_units": 30, "degree": 3, "input_degree": 3}, rank=5),
    "esn+i": network("esn+i", reservoir={"n_units": 20}),
    "esn+mlp": network("esn+mlp", **MLP),
    "esn+mlp, near": network("esn+mlp", **MLP | {"attention": 3, "gates": True, "n_blocks": 2}),
    "esn+mlp, one softmax": network("esn+mlp", **MLP, attention=0, two_level=False, n_direct=0),
    "esn+mlp, inputs": network("esn+mlp", **MLP | {"n_features": 0}, n_pairs=7, attention=1),
    "esn+mlp, no state": network("esn+mlp", **MLP, state=False),
    "2-grams": ngrams(2),
    "4-grams": ngrams(4),
    "unigrams": ngrams(1),
    "4-grams, an order set since": lambda: ngrams(4)().set_params(order=2),
}


@cache
def model_of(name: str):
    return fitted(name) if name not in MODELS else MODELS[name]()


def loaded(folder: Path, auto: str = "AutoModelForCausalLM", **options: Any):
    kind = getattr(transformers, auto)
    return kind.from_pretrained(folder, trust_remote_code=True, **options).eval()


def exported(ours: Any, tmp_path: Path):
    export_model(ours, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    return loaded(tmp_path / "out"), tokenizer


def scores(model: Any, batch: Any) -> np.ndarray:
    with torch.no_grad():
        logits = model(**batch).logits.double()
    chosen = logits[:, :-1].gather(-1, batch.input_ids[:, 1:, None])[..., 0]
    both = batch.attention_mask[:, 1:] * batch.attention_mask[:, :-1]
    return (chosen * both).sum(-1).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_models_of_all_kinds_score_as_they_do_here(name: str, tmp_path: Path) -> None:
    ours = model_of(name)
    model, tokenizer = exported(ours, tmp_path)
    expected = sentence_scores(ours, TEXTS)
    assert len(set(expected.round(3))) > len(TEXTS) // 2
    for side in ("left", "right"):
        batch = tokenizer(TEXTS, return_tensors="pt", padding=True, padding_side=side)
        found = scores(model, batch)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    ids = tokenizer("the boys who see", return_tensors="pt")
    with torch.no_grad():
        distribution = model(**ids).logits[0, -1].exp()[: ours.n_tokens_]
    np.testing.assert_allclose(distribution, ours.predict_proba("the boys who see"), atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_all_kinds_read_in_pieces_begin_again_and_generate(name: str, tmp_path: Path) -> None:
    model, tokenizer = exported(model_of(name), tmp_path)
    texts = ["the boys who see the cat hear a dog .", "a girl feeds the dog . a girl"]
    ids = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right").input_ids
    close: dict[str, Any] = {"rtol": 0, "atol": 1e-5}
    with torch.no_grad():
        whole = model(ids).logits
        cache, parts = None, []
        for part in ids.split([3, 1, ids.shape[1] - 4], dim=1):
            out = model(part, past_key_values=cache)
            cache = out.past_key_values
            parts.append(out.logits)
        torch.testing.assert_close(torch.cat(parts, 1), whole, **close)
        twice = model(torch.cat([ids[:1], ids[:1]], 1)).logits
        torch.testing.assert_close(twice[:, ids.shape[1] :], whole[:1], **close)
    batch = tokenizer(["the", "a girl sees"], return_tensors="pt", padding=True)
    for options in ({"do_sample": False}, {"num_beams": 3}):
        options |= {"max_new_tokens": 8}
        with_cache, without = (model.generate(**batch, **options, use_cache=use) for use in (1, 0))
        assert torch.equal(with_cache, without)


def test_n_grams_of_a_file_are_exported(tmp_path: Path) -> None:
    write_arpa(model_of("4-grams"), tmp_path / "four.arpa.gz")
    ours = load_model(tmp_path / "four.arpa.gz")
    model, tokenizer = exported(ours, tmp_path)
    found = scores(model, tokenizer(TEXTS, return_tensors="pt", padding=True))
    np.testing.assert_allclose(found, sentence_scores(ours, TEXTS), rtol=0, atol=1e-4)


def pipeline_sums(folder: Path, texts: list[str]) -> torch.Tensor:
    """Sums (n,) as `sentence_zero_shot` of the pipeline of 2025 and 2026 computes them."""
    tokenizer = transformers.AutoProcessor.from_pretrained(
        folder, padding_side="right", trust_remote_code=True
    )
    model = loaded(folder)
    rows, masks, phrases = [], [], []
    for text in texts:
        encoded = tokenizer(text=text, return_offsets_mapping=True)
        ends = [end for _, end in encoded["offset_mapping"]]
        rows.append(torch.LongTensor(encoded["input_ids"]))
        masks.append(torch.LongTensor(encoded["attention_mask"]))
        phrases.append(torch.LongTensor([int(end > 0) for end in ends]))
    pad = torch.nn.utils.rnn.pad_sequence
    ids = pad(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
    mask, phrase = pad(masks, batch_first=True), pad(phrases, batch_first=True)
    with torch.no_grad():
        logits = model(input_ids=ids[:, :-1], attention_mask=mask[:, :-1])["logits"]
    logs = torch.nn.functional.log_softmax(logits / 1.0, dim=-1)
    chosen = torch.gather(logs, -1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return torch.sum(chosen * phrase[:, 1:], dim=1)


@pytest.mark.parametrize(
    "name", ["byte pairs", "softmax", "low rank, direct", "esn+mlp", "4-grams"]
)
def test_the_steps_of_babylms_pipeline_decide_as_esnlm_blimp_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.__main__ import main

    ours = model_of(name)
    ours.save(tmp_path / "model")
    folder = write_blimp(tmp_path / "blimp")
    monkeypatch.chdir(tmp_path)
    assert main(["blimp", "model", "--data", str(folder), "--pairs-csv", "pairs.csv"]) == 0
    assert main(["export", "model", "out"]) == 0
    pairs = pd.read_csv("pairs.csv")
    texts = [*pairs["sentence_good"], *pairs["sentence_bad"]]
    good, bad = pipeline_sums(tmp_path / "out", texts).chunk(2)
    np.testing.assert_allclose(good, pairs["good"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(bad, pairs["bad"], rtol=0, atol=1e-4)
    credit = torch.where((good - bad).abs() < 1e-4, 0.5, (good > bad).float())
    assert credit.tolist() == pairs["credit"].tolist()


@pytest.mark.parametrize("name", ["softmax", "byte pairs", "esn+mlp", "lstm", "4-grams"])
def test_logits_have_the_dtype_that_is_asked_for(name: str, tmp_path: Path) -> None:
    ours = model_of(name)
    model, tokenizer = exported(ours, tmp_path)
    wide = loaded(tmp_path / "out", dtype=torch.float64)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        assert model(**batch).logits.dtype == torch.float32
        logits = wide(**batch).logits
    assert logits.dtype == torch.float64
    assert logits.shape[-1] == wide.config.vocab_size > batch.input_ids.max()
    np.testing.assert_allclose(logits.exp().sum(-1).numpy(), 1, atol=1e-6)
    assert torch.isfinite(logits).all()
    if name == "byte pairs":
        assert (logits[..., tokenizer.pad_token_id] < -1000).all()


@pytest.mark.parametrize("name", ["softmax", "byte pairs", "esn+mlp", "lstm"])
def test_a_classifier_learns_from_the_states(name: str, tmp_path: Path) -> None:
    ours = model_of(name)
    model, tokenizer = exported(ours, tmp_path)
    base = loaded(tmp_path / "out", "AutoModel")
    texts = sentences(60, seed=5)
    batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
    states = base(**batch).last_hidden_state
    assert states.shape == (*batch.input_ids.shape, base.config.hidden_size)
    whole = model(**batch, output_hidden_states=True)
    assert torch.equal(states, whole.hidden_states[-1])
    square = batch.attention_mask[:, None].repeat(1, states.shape[1], 1).tril()
    assert torch.equal(base(batch.input_ids, attention_mask=square)[0], states)
    last = batch.attention_mask.sum(1) - 1
    plural = torch.tensor([text.startswith("the") for text in texts]).float()
    rows = states[torch.arange(len(texts)), 1 if name == "softmax" else last].detach()
    rows = (rows - rows.mean(0)) / (rows.std(0) + 1e-3)
    head = torch.nn.Linear(rows.shape[1], 1)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(150):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(head(rows)[:, 0], plural)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert ((head(rows)[:, 0] > 0) == plural.bool()).float().mean() > 0.9


def test_n_grams_have_no_states(tmp_path: Path) -> None:
    export_model(model_of("4-grams"), tmp_path / "out")
    with pytest.raises(ValueError, match="n-grams have no states: load AutoModelForCausalLM"):
        loaded(tmp_path / "out", "AutoModel")(torch.tensor([[1, 2]]))


@pytest.mark.parametrize("spaced", [True, False])
def test_a_space_before_the_first_word_is_that_of_the_tokenizer(spaced: bool, tmp_path: Path):
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options: dict[str, Any] = {"special_tokens": ["<s>", "</s>"], "initial_alphabet": alphabet}
    backend.train_from_iterator(sentences(), trainers.BpeTrainer(vocab_size=300, **options))
    tokenizer = Tokenizer(backend, bos="<s>", eos="</s>").prepend_bos()
    ours = LanguageModel(Reservoir(30, random_state=0), RidgeReadout(), tokenizer=tokenizer)
    model, theirs = exported(ours.fit(sentences()), tmp_path)
    for text in TEXTS:
        assert theirs(text).input_ids == [ours.tokenizer_.bos_id, *ours.tokenizer_.encode(text)]
    assert theirs("<s>the").input_ids == theirs("the").input_ids
    found = scores(model, theirs(TEXTS, return_tensors="pt", padding=True))
    np.testing.assert_allclose(found, sentence_scores(ours, TEXTS), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["softmax", "byte pairs", "characters"])
@pytest.mark.parametrize("text", ["the <s> dog </s>", "a <unk> dog", "<|endoftext|>a<|endoftext|>"])
def test_special_tokens_in_a_text_are_text_to_both(name: str, text: str, tmp_path: Path) -> None:
    ours = model_of(name).tokenizer_
    export_model(model_of(name), tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    inside = text.removeprefix(ours.bos)
    assert theirs(text).input_ids == [ours.bos_id, *ours.encode(inside)]


@pytest.mark.parametrize("name", ["softmax", "byte pairs", "characters"])
@pytest.mark.parametrize("text", ["{} the dog {}", " {}  a . {} ", "{} a {} dog {}", "{} {} a {}"])
def test_marks_around_a_line_are_no_text_to_either(name: str, text: str, tmp_path: Path) -> None:
    model = model_of(name)
    ours = model.tokenizer_
    export_model(model, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    marks = [ours.bos, *[ours.eos] * (text.count("{}") - 1)]
    marked = text.format(*marks)
    assert theirs(marked).input_ids == model.tokenize([marked]).tokens.tolist()[:-1]
    own_sum = float(model.log_likelihood([marked])[0][:-1].sum())
    assert sentence_scores(model, [marked]).tolist() == pytest.approx([own_sum])


@pytest.mark.parametrize("text", ["<s> the dog sees </s>", "<s> the dog sees", "the <s> dog </s>"])
def test_marks_are_read_alike_where_the_state_is_never_reset(text: str, tmp_path: Path) -> None:
    model = NgramLanguageModel(order=2, tokenizer="word", reset="never").fit(sentences())
    export_model(model, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs(text).input_ids == model.tokenize([text]).tokens.tolist()[:-1]
