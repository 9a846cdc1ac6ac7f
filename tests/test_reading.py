"""Files that are no regular files."""

import os

import pytest
from command_line import refused

from esnlm.storage.model_folder import CONFIG


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_as_a_configuration_is_not_waited_for(tmp_path, text, capsys, folders):
    os.mkfifo(tmp_path / CONFIG)
    assert "a pipe or a device" in refused(capsys, "evaluate", tmp_path, text)
    pairs = "blimp", folders / "ngrams", "--data", tmp_path / CONFIG
    assert "a pipe or a device" in refused(capsys, *pairs)
