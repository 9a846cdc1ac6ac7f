"""Model folders whose contents do not belong together are refused."""

from importlib.util import find_spec

import numpy as np
import pytest
from command_line import refused
from tampered import altered


@pytest.mark.parametrize(
    ("model", "name", "change", "message"),
    [
        ("ridge", "reservoir.W.indptr", lambda a: np.r_[a[:-1], -1], "W.indptr must rise from 0"),
        ("ridge", "reservoir.W.indptr", lambda a: np.r_[a[:-1], 0], "W.indptr must rise from 0"),
        ("ridge", "reservoir.W.indptr", lambda a: np.r_[a[:-1], -(2**31)], "must rise from 0"),
        pytest.param(
            "network_esn",
            "reservoir.W_in.indptr",
            lambda a: np.r_[a[:-1], -1],
            "must rise from 0",
            marks=[pytest.mark.torch, pytest.mark.skipif(not find_spec("torch"), reason="torch")],
        ),
        ("ridge", "reservoir.leak_rate", lambda a: a > 0, "must be of one type"),
        ("ridge", "readout.coef_", lambda a: a[:, :-1].copy(), "coef_ must have shape"),
        ("ridge", "readout.coef_", lambda a: a * np.nan, "finite numbers"),
        ("ridge", "readout.classes_", lambda a: a[::-1].copy(), "tokens as its classes"),
        ("low_rank", "readout.word_class_", lambda a: a + 2**53, "integers of at most"),
        ("low_rank", "readout.word_class_", lambda a: a + 2**40, "numbered from 0"),
        ("low_rank_direct", "readout.ngrams_", lambda a: a[:-1], "ngram_coef_ must have shape"),
        ("ngrams", "tokens.2", lambda a: a + 27, "tokens.2 must lie in"),
        ("ngrams", "tokens.2", lambda a: a[::-1].copy(), "tokens.2 must rise"),
        ("ngrams", "children.3", lambda a: a + 1, "children.3 must add up"),
        ("ngrams", "discounts", lambda a: a - 5, "discounts must lie"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    model, name, change, message, tmp_path, text, capsys, folders
):
    def changed(config, arrays):
        arrays[name] = np.ascontiguousarray(change(arrays[name]))

    place = altered(folders / model, tmp_path / "model", changed)
    assert message in refused(capsys, "evaluate", place, text)


@pytest.mark.parametrize(
    "value", [10**12, -1, "x", None, [], {"class": "os", "params": {}}, 2.5, {"x": 1}]
)
@pytest.mark.parametrize("key", ["n_tokens", "settings", "reservoir", "readout", "tokenizer"])
def test_settings_that_make_no_model_are_refused(key, value, tmp_path, text, capsys, folders):
    place = altered(
        folders / "ridge", tmp_path / "model", lambda config, _: config.update({key: value})
    )
    refused(capsys, "evaluate", place, text)


def test_experts_that_are_not_there_are_refused(tmp_path, text, capsys, folders):
    def change(config, arrays):
        config["readout"]["params"]["class_readout"]["params"]["n_experts"] = 1 << 53

    folder = altered(folders / "factored_separate_moe", tmp_path / "m", change)
    assert "expert_coef_ must have shape" in refused(capsys, "evaluate", folder, text)
