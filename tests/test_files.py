"""Files come back bit for bit or are refused in one line; writing is all or nothing."""

import hashlib
import json
import os
import re
import stat
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from scalemix import files

DTYPES = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
HEADER = {"b": [1, 2.5, None, True], "a": {"ü": "\ud800 \n \u2028 \x00"}, "digest": "0" * 64}


def example_arrays() -> dict[str, np.ndarray]:
    return {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "key": np.uint32([[7, 8]])}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.scalemix"
    files.write(path, example_arrays(), {"name": "example"})
    return path


def refusal(path: Path) -> str:
    """The message with which a file is refused: a ValueError itself, of one line with its name."""
    with pytest.raises(ValueError, match=r"model") as caught:
        files.read(path)
    assert type(caught.value) is ValueError
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def forge(path: Path, change) -> None:
    """Rewrite a file with a changed table and a digest that fits."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    table = json.loads(content[8:end])
    table["__metadata__"]["sha256"] = "0" * 64
    change(table)
    raw = json.dumps(table, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    forged = len(raw).to_bytes(8, "little") + raw + content[end:]
    digest = hashlib.sha256(forged).hexdigest().encode()
    path.write_bytes(forged.replace(b"0" * 64, digest, 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (5,), (2, 3, 4)])
def test_round_trip_is_bit_for_bit(
    tmp_path: Path, dtype: str, shape: tuple[int, ...], seed: int
) -> None:
    # Random bytes: every bit pattern may occur, NaN with a payload among them.
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 256, size, np.uint8)
    array = raw.view(dtype).reshape(shape)
    files.write(tmp_path / "model", {"x": array}, HEADER)
    arrays, header = files.read(tmp_path / "model")
    assert header == HEADER
    assert list(arrays) == ["x"]
    found = arrays["x"]
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, shape, array.tobytes())
    assert found.flags.writeable
    assert found.flags.owndata


def test_many_arrays_of_any_layout(tmp_path: Path) -> None:
    base = np.arange(24.0).reshape(2, 3, 4)
    arrays = {
        "fortran": np.asfortranarray(base),
        "turned": base.transpose(2, 0, 1),
        "strided": base[:, ::2, ::-1],
        "broadcast": np.broadcast_to(np.float32(3), (2, 5)),
        "big-endian": base.astype(">f8"),
        "read-only": np.frombuffer(b"abc", np.uint8),
        "number": np.float64(0.1),
        "empty": np.empty((0, 7), np.int16),
        "also empty": np.empty(0, bool),
        "odd": np.ones(3, np.uint8),
        'a "name"\n\\ü': np.int64([1]),
        "": np.int32([2]),
    }
    files.write(tmp_path / "model", arrays, {})
    found, header = files.read(tmp_path / "model")
    assert header == {}
    assert list(found) == sorted(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=name != "big-endian")
        assert found[name].dtype.isnative
        assert found[name].flags.c_contiguous
    # Others read it, too: their parser, our bytes.
    theirs = safetensors.numpy.load_file(tmp_path / "model")
    assert theirs.keys() == arrays.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(array, found[name], strict=True)
    # ... and find every array at a multiple of its item size.
    content = (tmp_path / "model").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8:end]).items():
        if name != "__metadata__":
            assert (end + entry["data_offsets"][0]) % found[name].itemsize == 0


def test_nothing_at_all(tmp_path: Path) -> None:
    files.write(tmp_path / "model", {}, {})
    assert files.read(tmp_path / "model") == ({}, {})


def test_header_keeps_every_digit(tmp_path: Path) -> None:
    header = {"x": [0.1, 1e-320, -0.0, 2**70, 1 / 3], "shape": (24, 24)}
    files.write(str(tmp_path / "model"), {}, header)
    _, found = files.read(str(tmp_path / "model"))
    assert list(map(repr, found["x"])) == list(map(repr, header["x"]))
    assert found["shape"] == [24, 24]  # as documented


def test_same_content_same_bytes(tmp_path: Path) -> None:
    arrays = example_arrays()
    files.write(tmp_path / "one", arrays, {"a": 1, "b": 2})
    backwards = {name: np.asfortranarray(arrays[name]) for name in reversed(arrays)}
    files.write(tmp_path / "two", backwards, {"b": 2, "a": 1})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_digest_is_that_of_the_whole_file(saved: Path) -> None:
    content = saved.read_bytes()
    length = int.from_bytes(content[:8], "little")
    digest = json.loads(content[8 : 8 + length])["__metadata__"]["sha256"].encode()
    assert content.count(digest) == 1
    zeroed = content.replace(digest, b"0" * 64)
    assert hashlib.sha256(zeroed).hexdigest().encode() == digest


@pytest.mark.parametrize("mask", [1 << bit for bit in range(8)] + [0xFF])
def test_every_altered_byte_is_found(saved: Path, mask: int) -> None:
    content = saved.read_bytes()
    for position in range(len(content)):
        altered = bytearray(content)
        altered[position] ^= mask
        saved.write_bytes(altered)
        refusal(saved)
    saved.write_bytes(content)
    files.read(saved)


def test_every_length_but_the_right_one_is_refused(saved: Path) -> None:
    content = saved.read_bytes()
    for length in range(len(content)):
        saved.write_bytes(content[:length])
        refusal(saved)
    for tail in (b"\0", b" " * 8, content):
        saved.write_bytes(content + tail)
        assert "cut short or altered" in refusal(saved)
    saved.write_bytes(content[:-1])
    assert re.search("holds 31 bytes of arrays, expected 32", refusal(saved))


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 10**9, 1000])
def test_huge_claims_take_no_memory(saved: Path, length: int) -> None:
    content = saved.read_bytes()
    saved.write_bytes(length.to_bytes(8, "little") + content[8:])
    tracemalloc.start()
    try:
        message = refusal(saved)
        # An honest table of this file takes a few KiB; the claims are of 1 kB to 2^64 bytes.
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert f"claims a table of {length} bytes in a file of {len(content)}" in message


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [2**40]},
        {"shape": [2**40], "data_offsets": [8, 8 + 2**42]},
        {"shape": [0, 2**62, 2**62], "data_offsets": [8, 8]},
        {"shape": [1] * 40 + [6]},
        {"shape": [-2, -3]},
        {"shape": [6.0]},
        {"shape": [True, 6]},
        {"shape": 6},
        {"dtype": "F65"},
        {"dtype": ["F32"]},
        {"dtype": "F64"},
        {"data_offsets": [0, 24]},
        {"data_offsets": [9, 33]},
        {"data_offsets": [32, 8]},
        {"data_offsets": [8, 20, 32]},
        {"data_offsets": None},
    ],
)
def test_claims_on_arrays_that_do_not_fit_are_refused(saved: Path, entry: dict) -> None:
    forge(saved, lambda table: table["x"].update(entry))
    tracemalloc.start()
    try:
        message = refusal(saved)
        assert tracemalloc.get_traced_memory()[1] < 100_000  # see above
    finally:
        tracemalloc.stop()
    assert "'x'" in message or "'key'" in message or "bytes of arrays" in message


def test_arrays_that_do_not_tile_the_data_are_refused(saved: Path) -> None:
    forge(saved, lambda table: table.pop("key"))
    assert "has array 'x' at byte 8 of its data, expected 0" in refusal(saved)


def test_empty_array_of_an_impossible_shape_is_refused(saved: Path) -> None:
    for shape in ([0, 2**62, 2**62], [0] * 65, [0, 2**64]):
        saved.unlink()
        files.write(saved, {"x": np.empty(0)}, {})
        forge(saved, lambda table, shape=shape: table["x"].update(shape=shape))
        assert "gives array 'x' a dtype, shape and length" in refusal(saved)


def test_entry_that_is_no_object_is_refused(saved: Path) -> None:
    forge(saved, lambda table: table.update(x=[1, 2]))
    assert "'x'" in refusal(saved)


def test_forgery_helper_makes_files_that_are_read(saved: Path) -> None:
    """What the refusals of forged files stand on: it is not their digest that is wrong."""
    forge(saved, lambda table: table.update(y=table.pop("x")))
    arrays, _ = files.read(saved)
    assert list(arrays) == ["key", "y"]


def test_newer_version_is_named(saved: Path) -> None:
    newer = str(files.FORMAT_VERSION + 1)
    # A newer format may lay out its arrays in a way that this one does not know.
    forge(
        saved,
        lambda table: table.update(
            x={"new": 1}, __metadata__=table["__metadata__"] | {"version": newer}
        ),
    )
    message = refusal(saved)
    assert "was written by a newer version" in message
    assert "upgrade scalemix" in message


@pytest.mark.parametrize("version", [None, 1, "0", "-1", "1.0", "", "١", "9" * 5000, {}])
def test_version_that_is_none(saved: Path, version: object) -> None:
    forge(saved, lambda table: table["__metadata__"].update(version=version))
    message = refusal(saved)
    assert "format version" in message
    assert len(message) < 400


@pytest.mark.parametrize("header", [None, 3, "", "[]", "{", "NaN", ["a"], "[" * 100_000])
def test_header_that_is_none(saved: Path, header: object) -> None:
    forge(saved, lambda table: table["__metadata__"].update(header=header))
    assert "no JSON object" in refusal(saved)


def test_file_of_another_program(saved: Path) -> None:
    for metadata in (None, {"format": "pt"}):
        safetensors.numpy.save_file(example_arrays(), saved, metadata)
        assert "give a file that scalemix saved" in refusal(saved)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234567",
        b"\0" * 8,
        b"\0" * 100,
        b"\x80\x04\x95" + b"pickle" * 20,
        b"PK\x03\x04" + bytes(60),
        b"a,b\n1,2\n" * 50,
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (3).to_bytes(8, "little") + b"{}\xff",
        (200_000).to_bytes(8, "little") + b"[" * 200_000,
        (5_000).to_bytes(8, "little") + b"1" * 5_000,
    ],
)
def test_other_content_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model").write_bytes(content)
    refusal(tmp_path / "model")


def test_missing_file_and_directory(tmp_path: Path, saved: Path) -> None:
    for missing in (tmp_path / "model\nnone", saved / "below", tmp_path / "no" / "model"):
        with pytest.raises(FileNotFoundError, match=r"\Afound no file .*model.*; .*\Z"):
            files.read(missing)
    (tmp_path / "model").mkdir()
    assert "is a directory" in refusal(tmp_path / "model")
    with pytest.raises(ValueError, match=r"found no regular file in .*model"):
        files.write(tmp_path / "model", {}, {})
    with pytest.raises(FileNotFoundError, match=r"found no directory .*; create it first"):
        files.write(tmp_path / "no" / "model", {}, {})


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model")
    assert "not a regular file" in refusal(tmp_path / "model")
    with pytest.raises(ValueError, match="found no regular file"):
        files.write(tmp_path / "model", {}, {})


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_failed_write_leaves_the_old_file_alone(
    saved: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    before = saved.read_bytes()

    def fail(*_: object) -> None:
        assert len(list(saved.parent.iterdir())) == 2  # the temporary file stands beside it
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(type(error)):
            files.write(saved, {"x": np.zeros(1000)}, {})
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_order_of_writing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are on the disk before they take the name, and the name after it."""
    calls = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        calls.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    files.write(saved, {}, {})
    assert calls == ["file", "replace", "directory"]


def test_directory_that_cannot_be_flushed_is_no_failure(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def refuse_directories(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError("not supported")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_directories)
    files.write(saved, {}, {"new": 1})
    assert files.read(saved) == ({}, {"new": 1})


def test_permissions_and_links(tmp_path: Path) -> None:
    path = tmp_path / "model"
    mask = os.umask(0o027)
    try:
        files.write(path, {}, {})
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        files.write(path, {}, {"version": 2})
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(mask)
    link = tmp_path / "link"
    link.symlink_to(path)
    files.write(link, {}, {"version": 3})
    assert link.is_symlink()
    assert files.read(path) == files.read(link) == ({}, {"version": 3})


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ({"x": float("nan")}, ValueError),
        ({"x": [float("inf")]}, ValueError),
        ({"x": np.float32(1)}, TypeError),
        ({"x": np.zeros(2)}, TypeError),
        ({"x": {1: 2}}, TypeError),
        ({"x": [({None: 2},)]}, TypeError),
        ({1: 2, "x": 3}, TypeError),
    ],
)
def test_header_that_is_not_json_is_refused(tmp_path: Path, header, error: type) -> None:
    with pytest.raises(error, match=r"\Afound a header .*put anything else among the arrays\Z"):
        files.write(tmp_path / "model", {}, header)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("x", np.array(["a"])),
        ("x", np.array([None])),
        ("x", np.zeros(2, complex)),
        ("x", np.zeros(2, "M8[s]")),
        ("x", np.zeros(2, "f4, i4")),
        ("__metadata__", np.zeros(2)),
        (3, np.zeros(2)),
    ],
)
def test_array_that_cannot_be_stored_is_refused(tmp_path: Path, name, array: np.ndarray) -> None:
    with pytest.raises(ValueError, match=rf"\Afound (an )?array .*{name}.*; .*\Z"):
        files.write(tmp_path / "model", {name: array}, {})
    assert list(tmp_path.iterdir()) == []


def test_large_file_is_read_in_place(tmp_path: Path) -> None:
    array = np.arange(2**21, dtype=np.float64)  # 16 MiB
    tracemalloc.start()
    try:
        files.write(tmp_path / "model", {"x": array}, {})
        # Written from where it is; read into where it goes, past a block of 1 MiB for the digest.
        assert tracemalloc.get_traced_memory()[1] < 2**21
        tracemalloc.reset_peak()
        arrays, _ = files.read(tmp_path / "model")
        assert tracemalloc.get_traced_memory()[1] < array.nbytes + 2**22
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(arrays["x"], array)
