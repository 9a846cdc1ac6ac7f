"""Model folders whose contents are changed and whose checksums are right again."""

import json
from pathlib import Path

from safetensors.numpy import load_file, save_file

from esnlm.storage.model_folder import CONFIG, MODEL, TOKENIZER, WEIGHTS, write_files
from esnlm.storage.tensor_file import file_digest


def altered(source: Path, place: Path, change) -> Path:
    """A folder of a model whose contents were changed and sealed anew."""
    config = json.loads((source / CONFIG).read_text())
    for key in ("format", "version", "config_sha256", "sha256"):
        del config[key]
    arrays = load_file(source / WEIGHTS)
    texts = {TOKENIZER: (source / TOKENIZER).read_text()}
    change(config, arrays)
    place.mkdir()
    write_files(place, MODEL, config, {WEIGHTS: load_file(source / WEIGHTS)}, texts)
    save_file(arrays, place / WEIGHTS)
    resealed(place)
    return place


def resealed(place: Path) -> None:
    """Make the checksums of a model folder right."""
    config = json.loads((place / CONFIG).read_text())
    del config["config_sha256"]
    config["sha256"] = {name: file_digest(place / name) for name in config["sha256"]}
    (place / CONFIG).write_bytes(MODEL.sealed(config))
