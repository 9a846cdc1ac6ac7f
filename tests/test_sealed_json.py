"""JSON with a checksum."""

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
