"""Headers of arrays that are none."""

import pytest
from command_line import refused
from tampered import altered, resealed

from esnlm.storage.model_folder import WEIGHTS
from esnlm.storage.tensor_file import read_tensors


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b"[1]",
        b'{"a":1}',
        b'{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[99999999999],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}',
    ],
)
def test_headers_of_no_arrays_are_refused(header, tmp_path, text, capsys, folders):
    place = altered(folders / "ridge", tmp_path / "model", lambda *_: None)
    data = (place / WEIGHTS).read_bytes()
    rest = data[8 + int.from_bytes(data[:8], "little") :]
    (place / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + rest)
    resealed(place)
    assert "is not a safetensors file" in refused(capsys, "evaluate", place, text)


def test_arrays_of_a_type_that_numpy_lacks_are_refused(tmp_path):
    header = b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"0000")
    with pytest.raises(ValueError, match=r"a of .* has type 'BF16', expected F64"):
        read_tensors(path)
