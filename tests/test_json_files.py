"""JSON files that are nested too deep, or no regular files."""

import os

import pytest
from command_line import refused

from esnlm.storage.model_folder import CONFIG
from esnlm.text.shards import MANIFEST


@pytest.mark.parametrize("name", [CONFIG, MANIFEST])
def test_json_that_is_nested_deep_is_refused(name, tmp_path, text, capsys):
    place = tmp_path / "folder"
    place.mkdir()
    (place / name).write_text("[" * 100_000)
    read = (
        ["evaluate", place, text] if name == CONFIG else ["train", place, "--out", tmp_path / "o"]
    )
    assert "nested too deep" in refused(capsys, *read)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_as_a_configuration_is_not_waited_for(tmp_path, text, capsys, folders):
    os.mkfifo(tmp_path / CONFIG)
    assert "a pipe or a device" in refused(capsys, "evaluate", tmp_path, text)
    pairs = "blimp", folders / "ngrams", "--data", tmp_path / CONFIG
    assert "a pipe or a device" in refused(capsys, *pairs)
