"""One file of arrays and a JSON header, written atomically and checked before it is believed.

The file is a valid safetensors file, so other programs can read its arrays:

    8 bytes     length N of the table, unsigned, little-endian
    N bytes     the table: a JSON object, padded by spaces to a multiple of 8
    the rest    the arrays, C order, little-endian, back to back

The table holds dtype, shape and place of each array, and under ``__metadata__`` (strings only, as
safetensors wants) ``format`` = "scalemix", ``version``, ``header`` (the caller's, as JSON text) and
``sha256``: the digest of the entire file with its own 64 digits replaced by zeros, so that an
altered byte is found wherever it is. The digest stands first, at a fixed place.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import reprlib
import secrets
import stat
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMAT_VERSION", "read", "write"]

FORMAT_NAME = "scalemix"
FORMAT_VERSION = 1

# The types that can be stored: safetensors' names and NumPy's little-endian dtypes.
DTYPES = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

METADATA = "__metadata__"
BEFORE_DIGEST = b'{"__metadata__":{"sha256":"'
ZEROS = b"0" * 64
LONGEST_TABLE = 100_000_000  # the limit of the safetensors library, too
MOST_DIMENSIONS = 32
BLOCK = 1 << 20
REMEDY = "it was cut short or altered, copy or save it again"


def write(
    path: str | os.PathLike[str], arrays: Mapping[str, NDArray], header: Mapping[str, Any]
) -> None:
    """Write arrays and a header to one file, all or nothing.

    The bytes go to a temporary file beside `path`, are flushed to the disk and take its name in one
    step: whatever happens, `path` is the whole old file or the whole new one. The same content
    gives the same bytes.

    Parameters
    ----------
    path : path of the file
        Replaced if it exists, keeping its permissions; a new file has those of the umask. A
        symbolic link is followed.
    arrays : mapping from name to array
        Booleans, integers of 8 to 64 bits, floats of 16 to 64 bits; any shape and memory order.
    header : mapping from str to JSON value
        Finite numbers, strings, booleans, None, lists, and dictionaries with string keys. A tuple
        comes back as a list.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise ValueError(f"found no regular file in {str(path)!r}; give the path of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"found no directory {str(target.parent)!r}; create it first")
    stored = {name: _storable(name, array) for name, array in arrays.items()}
    # As safetensors does it: the widest types first, which keeps every array aligned.
    stored = dict(sorted(stored.items(), key=lambda item: (-item[1].itemsize, item[0])))
    table = _table(stored, _header_text(header))
    contents = [_memory(array) for array in stored.values()]

    digest = hashlib.sha256(table)
    for content in contents:
        digest.update(content)
    start = 8 + len(BEFORE_DIGEST)
    table = table[:start] + digest.hexdigest().encode() + table[start + len(ZEROS) :]
    _replace(target, [memoryview(table), *contents])


def read(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Read a file that `write` made, once it has passed every check.

    In this order, and before memory is taken for what the file claims to hold: it is a regular
    file, the length of its table, the table, the format and its version, the place, dtype and shape
    of every array, the digest of all bytes. Nothing in the file is ever executed.

    Parameters
    ----------
    path : path of the file

    Returns
    -------
    arrays : dict from name to array
        Bit for bit what was written, in C order; names are sorted.
    header : dict

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        Not of this format, from a newer version, cut short or altered: one line says which.
    """
    shown = repr(os.fspath(path))
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"found no file {shown}; check the path") from None
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise ValueError(f"{shown} is {kind}, expected a file; give the path of a scalemix file")
    with open(path, "rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        try:
            raw = _read_table(handle, size)
            entries, metadata = _parse_table(raw)
            _check_format(metadata)
            places = _check_places(entries, size - 8 - len(raw))
            _check_digest(handle, raw, metadata)
            header = _parse_json(metadata.get("header"))
            handle.seek(8 + len(raw))
            arrays = {name: _read_array(handle, place) for name, place in places.items()}
        except _UnreadableError as reason:
            raise ValueError(f"{shown} {reason}") from None
    return {name: arrays[name] for name in sorted(arrays)}, header


class _UnreadableError(Exception):
    """Why a file is not read, to be completed by its name."""


class _Place(NamedTuple):
    """Where an array is in the data, and what it is."""

    begin: int
    end: int
    dtype: np.dtype
    shape: tuple[int, ...]


def _storable(name: str, array: NDArray) -> NDArray:
    """An array in C order, little-endian, of a dtype that can be stored."""
    if not isinstance(name, str) or name == METADATA:
        raise ValueError(f"found an array named {name!r}; name it by another string")
    values = np.asarray(array)
    dtype = values.dtype.newbyteorder("<")
    if dtype not in NAMES:
        raise ValueError(
            f"found array {name!r} of dtype {values.dtype}, expected one of "
            f"{', '.join(known.name for known in NAMES)}; convert it"
        )
    return np.asarray(values, dtype=dtype, order="C")


def _memory(array: NDArray) -> memoryview:
    """The bytes of an array in C order, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def _header_text(header: Mapping[str, Any]) -> str:
    expected = (
        "expected finite numbers, strings, booleans, None, lists and dictionaries whose keys are "
        "strings; put anything else among the arrays"
    )
    try:
        text = json.dumps(header, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"found a header that is not JSON ({error}), {expected}") from None
    except TypeError as error:
        raise TypeError(f"found a header that is not JSON ({error}), {expected}") from None
    if not _has_string_keys(header):  # JSON would turn the others into strings, silently
        raise TypeError(f"found a header with keys that are not strings, {expected}")
    return text


def _has_string_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_string_keys(value[key]) for key in value)
    return not isinstance(value, list | tuple) or all(map(_has_string_keys, value))


def _table(arrays: Mapping[str, NDArray], header_text: str) -> bytes:
    """The beginning of the file, up to the arrays, with zeros for the digest."""
    table: dict[str, Any] = {
        METADATA: {
            "sha256": ZEROS.decode(),
            "format": FORMAT_NAME,
            "version": str(FORMAT_VERSION),
            "header": header_text,
        }
    }
    begin = 0
    for name, array in arrays.items():
        place = {"dtype": NAMES[array.dtype], "shape": array.shape}
        table[name] = place | {"data_offsets": [begin, begin + array.nbytes]}
        begin += array.nbytes
    raw = json.dumps(table, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    if len(raw) > LONGEST_TABLE:
        raise ValueError(
            f"found a header of {len(raw)} bytes with the names of the arrays, expected at most "
            f"{LONGEST_TABLE}; put bulk data among the arrays"
        )
    return len(raw).to_bytes(8, "little") + raw


def _replace(target: Path, contents: list[memoryview]) -> None:
    """Put the contents in the place of the target in one step."""
    temporary = target.with_name(f".scalemix-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as handle:  # new, with the permissions of the umask
            for content in contents:
                handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    # The new name, too, should outlast a power cut: where the system can (Windows cannot).
    with contextlib.suppress(OSError):
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _read_table(handle: BufferedReader, size: int) -> bytes:
    """The bytes of the table; never more are asked for than the file has."""
    if size < 8:
        raise _UnreadableError(f"has {size} bytes, a scalemix file at least 8: {REMEDY}")
    length = int.from_bytes(handle.read(8), "little")
    if length > min(size - 8, LONGEST_TABLE):
        raise _UnreadableError(
            f"claims a table of {length} bytes in a file of {size}: no scalemix file, or {REMEDY}"
        )
    return handle.read(length)


def _parse_json(text: str | bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text is not None else None
    except (ValueError, TypeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _UnreadableError(
            f"has no JSON object where one is expected: no scalemix file, or {REMEDY}"
        )
    return value


def _parse_table(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the table says of the arrays, and its metadata."""
    table = _parse_json(raw)
    metadata = table.pop(METADATA, None)
    return table, metadata if isinstance(metadata, dict) else {}


def _check_format(metadata: dict[str, Any]) -> None:
    name, version = metadata.get("format"), metadata.get("version")
    if name != FORMAT_NAME:
        raise _UnreadableError(
            f"has the format {reprlib.repr(name)}, expected {FORMAT_NAME!r}: "
            "give a file that scalemix saved"
        )
    # ASCII digits, and few: anything else is no version, and int() would not be safe with it.
    if not (isinstance(version, str) and re.fullmatch("[1-9][0-9]{0,8}", version)):
        raise _UnreadableError(
            f"has the format version {reprlib.repr(version)}, expected 1 to {FORMAT_VERSION}: "
            f"{REMEDY}"
        )
    if int(version) > FORMAT_VERSION:
        raise _UnreadableError(
            f"was written by a newer version of scalemix (format {version}, expected at most "
            f"{FORMAT_VERSION}): upgrade scalemix"
        )


def _check_places(entries: dict[str, Any], data_size: int) -> dict[str, _Place]:
    """Where the arrays are, in the order of the file, once they are seen to tile its data."""
    places = {name: _parse_place(name, entry) for name, entry in entries.items()}
    ordered = dict(sorted(places.items(), key=lambda item: item[1][:2]))
    position = 0
    for name, place in ordered.items():
        if place.begin != position:
            raise _UnreadableError(
                f"has array {reprlib.repr(name)} at byte {place.begin} of its data, expected "
                f"{position}: {REMEDY}"
            )
        position = place.end
    if position != data_size:
        raise _UnreadableError(f"holds {data_size} bytes of arrays, expected {position}: {REMEDY}")
    return ordered


def _parse_place(name: str, entry: Any) -> _Place:
    """The place of one array, if dtype, shape and length fit together."""
    fields = entry if isinstance(entry, dict) else {}
    dtype = DTYPES.get(str(fields.get("dtype")))
    shape, offsets = _counts(fields.get("shape")), _counts(fields.get("data_offsets"))
    if dtype is not None and shape is not None and offsets is not None and len(offsets) == 2:
        place = _Place(*offsets, dtype, shape)
        # NumPy has no array of more dimensions or of a larger extent, not even an empty one.
        possible = len(shape) <= MOST_DIMENSIONS and math.prod(filter(None, shape)) < 1 << 59
        if possible and place.end - place.begin == dtype.itemsize * math.prod(shape):
            return place
    raise _UnreadableError(
        f"gives array {reprlib.repr(name)} a dtype, shape and length that do not fit: {REMEDY}"
    )


def _counts(values: Any) -> tuple[int, ...] | None:
    """The values as a tuple if they are a list of integers that are not negative."""
    whole = isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
    return tuple(values) if whole else None


def _check_digest(handle: BufferedReader, raw: bytes, metadata: dict[str, Any]) -> None:
    """Compare the digest in the file with that of its bytes, block by block."""
    start = 8 + len(BEFORE_DIGEST)
    handle.seek(0)
    digest = hashlib.sha256(handle.read(start) + ZEROS)
    handle.seek(start + len(ZEROS))
    while block := handle.read(BLOCK):
        digest.update(block)
    if not raw.startswith(BEFORE_DIGEST) or digest.hexdigest() != metadata.get("sha256"):
        raise _UnreadableError(f"does not have the SHA-256 digest it names: {REMEDY}")


def _read_array(handle: BufferedReader, place: _Place) -> NDArray:
    """The next array of the file."""
    array = np.empty(place.shape, place.dtype)
    if handle.readinto(_memory(array)) != array.nbytes:
        raise _UnreadableError("became shorter while it was read: read it again")
    return array
