"""Exported folders in transformers itself, beside our own scores."""

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from interop_cases import CASES, fitted, minimal_pairs, sentence_scores, sentences

from esnlm import LanguageModel, Reservoir, RidgeReadout
from esnlm.interop.huggingface import PAD, export_model
from esnlm.text.boundaries import framed_prefix

torch = pytest.importorskip("torch", reason="needs the hf extra")
transformers = pytest.importorskip("transformers", reason="needs the hf extra")
pytestmark = [
    pytest.mark.hf,
    pytest.mark.usefixtures("offline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers"),
]

#: Sentence scores of other clients may differ from ours by this much, in nats.
TOLERANCE = 1e-4
TEXTS = [text for pairs in minimal_pairs(6).values() for pair in pairs for text in pair]


def loaded(folder: Path):
    options = {"trust_remote_code": True}
    # Version 5 takes the dtype of the file by itself, version 4 when asked.
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", **options)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder, **options)


def exported(model: LanguageModel, tmp_path: Path):
    export_model(model, tmp_path / "exported")
    return loaded(tmp_path / "exported")


def scores(model, tokenizer, texts: list[str], side: str) -> np.ndarray:
    tokenizer.padding_side = side
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        logits = model(**batch).logits
    chosen = torch.log_softmax(logits[:, :-1], -1)
    chosen = chosen.gather(-1, batch.input_ids[:, 1:, None])[..., 0]
    both = batch.attention_mask[:, 1:] * batch.attention_mask[:, :-1]
    return (chosen.double() * both).sum(-1).numpy()


@pytest.mark.parametrize("case", CASES)
def test_sentence_scores_equal_ours(case: str, tmp_path: Path) -> None:
    ours = fitted(case)
    model, tokenizer = exported(ours, tmp_path)
    expected = sentence_scores(ours, TEXTS)
    assert len(set(expected.round(3))) > len(TEXTS) // 2
    tolerance = TOLERANCE if ours.reservoir_.W_.dtype == np.float32 else 1e-9
    for side in ("left", "right"):
        found = scores(model, tokenizer, TEXTS, side)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
        for i in range(0, len(TEXTS), 2):
            if TEXTS[i] != TEXTS[i + 1]:
                assert (found[i] > found[i + 1]) == (expected[i] > expected[i + 1])
    assert next(model.parameters()).dtype == getattr(torch, str(ours.reservoir_.W_.dtype))


@pytest.mark.parametrize("case", ["softmax", "linear mixture", "factored, joint ridge"])
def test_logits_are_log_probabilities_of_every_token(case: str, tmp_path: Path) -> None:
    ours = fitted(case)
    model, tokenizer = exported(ours, tmp_path)
    text = "the boys who see"
    with torch.no_grad():
        out = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
    logits = out.logits[0, -1]
    np.testing.assert_allclose(logits.exp().numpy(), ours.predict_proba(text), atol=1e-6)
    assert torch.allclose(torch.log_softmax(logits, -1), logits, atol=1e-9)
    state = ours.reservoir_.transform(
        framed_prefix(text, ours.tokenizer_, "sentence"),
        features=None if ours.features_ is None else ours.features_.embedding_,
    )
    np.testing.assert_allclose(out.hidden_states[0][0].numpy(), state, atol=1e-5)


@pytest.mark.parametrize("case", ["softmax", "mixture"])
def test_words_next_to_impossible_have_the_same_logits(case: str, tmp_path: Path) -> None:
    """The softmaxes of a mixture give no share below exp(-25), and those of others do."""
    ours = deepcopy(fitted(case))
    getattr(ours.readout_, "coef_" if case == "softmax" else "expert_coef_")[:] *= 6
    model, tokenizer = exported(ours, tmp_path)
    text = "the boys who see"
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0, -1].numpy()
    expected = np.log(ours.predict_proba(text))
    assert expected.min() < -24
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("case", ["softmax", "mixture", "byte pairs"])
def test_generation_goes_on_from_a_cached_state(case: str, tmp_path: Path) -> None:
    ours = fitted(case)
    model, tokenizer = exported(ours, tmp_path)
    prompts = ["the", "a girl", "the boys who see the"]
    tokenizer.padding_side = "left"
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    options = {"max_new_tokens": 12, "do_sample": False}
    cached = model.generate(**batch, **options)
    whole = model.generate(**batch, **options, use_cache=False)
    assert torch.equal(cached, whole)
    eos = ours.tokenizer_.eos_id
    for prompt, row in zip(prompts, cached[:, batch.input_ids.shape[1] :].tolist(), strict=True):
        row = row[: row.index(eos) + 1] if eos in row else row
        drawn = ours.tokenizer_.encode(prompt).tolist()
        prefix = [ours.tokenizer_.bos_id, *drawn]
        from esnlm.models.sampling import SamplingOptions

        assert row == list(
            ours.generate(len(row), prompt=prefix, choice=SamplingOptions(temperature=0))
        )


def test_beams_and_samples(tmp_path: Path) -> None:
    model, tokenizer = exported(fitted("softmax"), tmp_path)
    batch = tokenizer(["the", "a girl sees"], return_tensors="pt", padding=True)
    sampled = {"do_sample": True, "num_return_sequences": 2, "top_k": 5}
    for options in ({"num_beams": 3}, sampled):
        options |= {"max_new_tokens": 10}
        both = [
            (torch.manual_seed(0), model.generate(**batch, **options, use_cache=use))[1]
            for use in (True, False)
        ]
        assert torch.equal(*(rows[:, :8] for rows in both))
        assert not (both[0][:, 4:] == tokenizer.bos_token_id).any()


def test_a_text_may_be_read_in_pieces(tmp_path: Path) -> None:
    model, tokenizer = exported(fitted("ridge"), tmp_path)
    ids = tokenizer("the boys who see the cat hear a dog .", return_tensors="pt").input_ids
    with torch.no_grad():
        whole = model(ids).logits
        first = model(ids[:, :4], use_cache=True)
        rest = model(ids[:, 4:], past_key_values=first.past_key_values)
        last = model(ids, logits_to_keep=1).logits
    close = {"rtol": 0, "atol": 1e-5}
    pieces = torch.cat([first.logits, rest.logits], 1)
    torch.testing.assert_close(pieces, whole, **close)
    torch.testing.assert_close(last, whole[:, -1:], **close)
    assert rest.past_key_values.get_seq_length() == ids.shape[1]


def test_bos_begins_again_from_zero(tmp_path: Path) -> None:
    model, tokenizer = exported(fitted("softmax"), tmp_path)
    once = tokenizer("the boys see", return_tensors="pt").input_ids
    with torch.no_grad():
        twice = model(torch.cat([once, once], 1)).logits
        again = twice[:, once.shape[1] :]
        torch.testing.assert_close(again, model(once).logits, rtol=0, atol=1e-5)


def test_the_loss_is_the_mean_over_predicted_tokens(tmp_path: Path) -> None:
    ours = fitted("softmax")
    model, tokenizer = exported(ours, tmp_path)
    tokenizer.padding_side = "right"
    ended = [text + " </s>" for text in TEXTS]
    batch = tokenizer(ended, return_tensors="pt", padding=True, split_special_tokens=False)
    labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
    out = model(**batch, labels=labels)
    assert abs(out.loss.item() + ours.score(TEXTS)) < 1e-5
    assert model(**batch, labels=batch.input_ids).loss == out.loss  # padding is no label
    out.loss.backward()
    assert model.readout.coef.grad.abs().sum() > 0


def test_the_folder_needs_nothing_of_ours(tmp_path: Path) -> None:
    ours = fitted("factored, separate")
    export_model(ours, tmp_path / "exported")
    script = f"""
import sys
sys.modules["esnlm"] = None
import transformers
folder = {str(tmp_path / "exported")!r}
model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
batch = tokenizer("the boys see the cat .", return_tensors="pt")
print(-model(**batch, labels=batch.input_ids).loss.item() * (batch.input_ids.shape[1] - 1))
"""
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = sentence_scores(ours, ["the boys see the cat ."])[0]
    assert abs(float(done.stdout.split()[-1]) - expected) < TOLERANCE


def test_transformers_can_save_it_again(tmp_path: Path) -> None:
    ours = fitted("softmax")
    model, tokenizer = exported(ours, tmp_path)
    model.save_pretrained(tmp_path / "again")
    tokenizer.save_pretrained(tmp_path / "again")
    found = scores(*loaded(tmp_path / "again"), TEXTS, "right")
    np.testing.assert_allclose(found, sentence_scores(ours, TEXTS), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", ["ridge", "byte pairs", "characters"])
def test_the_tokenizer_puts_bos_first_by_itself(case: str, tmp_path: Path) -> None:
    ours = fitted(case)
    _, tokenizer = exported(ours, tmp_path)
    texts = [*TEXTS, "", "A zebra, two gnus?", "caf\u00e9 \u4f60\u597d"]
    if case == "ridge":
        texts.append("  two   spaces ")
    for text in texts:
        expected = [ours.tokenizer_.bos_id, *ours.tokenizer_.encode(text)]
        assert tokenizer(text).input_ids == expected
    assert tokenizer.bos_token == ours.tokenizer_.bos
    assert tokenizer.eos_token == ours.tokenizer_.eos
    assert tokenizer.pad_token_id != tokenizer.bos_token_id
    assert tokenizer.pad_token == (PAD if case == "byte pairs" else "</s>")


def test_a_state_that_is_never_reset_has_no_bos(tmp_path: Path) -> None:
    ours = LanguageModel(
        Reservoir(40, random_state=0), RidgeReadout(), tokenizer="word", reset="never"
    ).fit(["\n".join(sentences(150))])
    model, tokenizer = exported(ours, tmp_path)
    text = "the boys see the cat . </s> a girl hears"
    ids = tokenizer(text, return_tensors="pt").input_ids
    assert ids[0].tolist() == ours.tokenizer_.encode(text).tolist()
    assert tokenizer.bos_token is None
    with torch.no_grad():
        logits = model(ids).logits
    chosen = logits[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
    expected = ours.log_likelihood([ids[0].numpy()])[0]
    np.testing.assert_allclose(chosen.numpy(), expected, atol=1e-5)


def test_a_model_of_integers_reads_token_ids(tmp_path: Path) -> None:
    docs = [np.random.default_rng(i).integers(0, 9, 30) for i in range(20)]
    ours = LanguageModel(Reservoir(20, random_state=0), RidgeReadout()).fit(docs)
    export_model(ours, tmp_path / "exported")
    assert not list((tmp_path / "exported").glob("tokenizer*"))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "exported", trust_remote_code=True
    )
    with torch.no_grad():
        logits = model(torch.tensor(docs[0])[None]).logits[0, :-1]
    chosen = logits.gather(-1, torch.tensor(docs[0])[1:, None])[:, 0]
    np.testing.assert_allclose(chosen.numpy(), ours.log_likelihood(docs[:1])[0], atol=1e-5)


def test_indices_that_do_not_fit_are_noticed(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "exported"
    export_model(fitted("ridge"), folder)
    arrays = load_file(folder / "model.safetensors")
    arrays["model.encoder.recurrent.indices"][3] = 10_000
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    model, tokenizer = loaded(folder)
    with pytest.raises(RuntimeError, match="col_indices"):
        model(**tokenizer("the boy", return_tensors="pt"))


def test_config_says_what_scorers_ask(tmp_path: Path) -> None:
    model, tokenizer = exported(fitted("ridge"), tmp_path)
    assert model.config.n_positions == model.config.max_position_embeddings == 1 << 20
    assert tokenizer.model_max_length == 1 << 20
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    settings = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert settings["auto_map"]["AutoModelForCausalLM"] == "modeling_esnlm.EsnlmForCausalLM"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_types_of_few_bits_are_refused(dtype, tmp_path: Path) -> None:
    export_model(fitted("ridge"), tmp_path / "exported")
    options = {"trust_remote_code": True}
    message = rf"computes in float32 or float64: load it with dtype=torch.float32, got {dtype}"
    with pytest.raises(ValueError, match=message):
        transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "exported", dtype=dtype, **options
        )
    model, tokenizer = loaded(tmp_path / "exported")
    with pytest.raises(ValueError, match=message):
        model.to(dtype)(**tokenizer("the boys", return_tensors="pt"))


_LOAD_TOKENIZER = """
import json, sys
import transformers

folder, options, texts = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
print(json.dumps(tokenizer(texts).input_ids))
"""


@pytest.mark.parametrize(
    ("options", "saved_again"),
    [
        ({"trust_remote_code": False}, False),
        ({"trust_remote_code": True}, False),
        ({}, True),
    ],
)
def test_a_tokenizer_loads_without_a_word(options: dict, saved_again: bool, tmp_path: Path) -> None:
    ours = fitted("ridge")
    folder = tmp_path / "exported"
    model, tokenizer = exported(ours, tmp_path)
    if saved_again:
        folder = tmp_path / "again"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if not options.get("trust_remote_code"):
        (folder / "modeling_esnlm.py").write_text("raise SystemExit('was run')")
    home = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": "/usr/bin"}
    arguments = [str(folder), json.dumps(options), json.dumps(TEXTS)]
    done = subprocess.run(
        [sys.executable, "-c", _LOAD_TOKENIZER, *arguments],
        capture_output=True,
        text=True,
        env=home,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    expected = [framed_prefix(text, ours.tokenizer_, ours.reset_).tolist() for text in TEXTS]
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == expected  # and no question before it


@pytest.mark.parametrize("case", ["softmax", "byte pairs", "characters"])
def test_tokenizers_of_all_kinds_load_without_the_code(
    case: str, tmp_path: Path, monkeypatch
) -> None:
    ours = fitted(case)
    export_model(ours, tmp_path / "exported")
    (tmp_path / "exported" / "modeling_esnlm.py").write_text("raise SystemExit")
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked to run code"))
    expected = [framed_prefix(text, ours.tokenizer_, ours.reset_).tolist() for text in TEXTS]
    folder = tmp_path / "exported"
    plain = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    auto = transformers.AutoTokenizer.from_pretrained(folder)
    assert plain(TEXTS).input_ids == auto(TEXTS).input_ids == expected
    known = [ids for ids in expected if ours.tokenizer_.unk_id not in ids]  # it skips unknown ones
    decoded = [auto.decode(ids, skip_special_tokens=True) for ids in known]
    assert known
    assert decoded == [ours.tokenizer_.decode(ids) for ids in known]


def test_a_model_is_not_loaded_without_its_code(tmp_path: Path, monkeypatch) -> None:
    export_model(fitted("ridge"), tmp_path / "exported")
    monkeypatch.setattr("builtins.input", lambda _: "n")
    for auto in ("AutoModelForCausalLM", "AutoModel"):
        with pytest.raises(ValueError, match=r"custom code|Unrecognized configuration|sub-config"):
            getattr(transformers, auto).from_pretrained(tmp_path / "exported")
