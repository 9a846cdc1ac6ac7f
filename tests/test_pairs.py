"""Folders and archives of sentence pairs that cannot be read are refused."""

import errno
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from command_line import refused

from esnlm.text.archives import LARGEST_ARCHIVE

PAIR = {"sentence_good": "the dog walks", "sentence_bad": "the dog walk"}


@pytest.mark.parametrize("damage", ["lzma", "encrypted", "claims"])
def test_a_zip_that_cannot_be_unpacked_is_refused(damage, tmp_path, capsys, folders):
    path = tmp_path / "pairs.zip"
    method = zipfile.ZIP_LZMA if damage == "lzma" else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("data/a.jsonl", json.dumps(PAIR) * 9)
    data = bytearray(path.read_bytes())
    local, central = data.find(b"PK\x03\x04"), data.find(b"PK\x01\x02")
    if damage == "lzma":
        data[local + 30 + len("data/a.jsonl") + 9] ^= 0xFF
    elif damage == "encrypted":
        data[local + 6] |= 1
        data[central + 8] |= 1
    else:
        data[central + 24 : central + 28] = (2**31).to_bytes(4, "little")
    path.write_bytes(data)
    line = refused(capsys, "blimp", folders / "ngrams", "--data", path)
    assert str(path) in line
    assert damage != "claims" or str(LARGEST_ARCHIVE) in line


def test_a_tar_that_claims_too_much_is_refused(tmp_path, capsys, folders):
    path = tmp_path / "pairs.tar"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("a.jsonl")
        member.size = 2**40
        archive.fileobj.write(member.tobuf())  # addfile refuses it without its bytes
    assert str(LARGEST_ARCHIVE) in refused(capsys, "blimp", folders / "ngrams", "--data", path)


@pytest.mark.parametrize("command", ["blimp --data", "syntaxgym --suites"])
def test_a_folder_that_may_not_be_read_is_told(
    command, tmp_path, capsys, folders, monkeypatch: pytest.MonkeyPatch
):
    def refuse(place: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(place))

    name, option = command.split()
    monkeypatch.setattr(os, "scandir", refuse)
    line = refused(capsys, name, folders / "ngrams", option, tmp_path)
    assert line.endswith(f"{tmp_path}: Permission denied")
