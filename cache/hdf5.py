"""The HDF5 underneath all three files: written aside and renamed, text of fixed length, errors with the path.

Files are written with the newest layout, whose metadata carry checksums (with the old layout a single
flipped byte can make the library crash or hang), and never changed in place, so readers need no locks.
"""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import h5py
import numpy as np

from fsnl.cache.arrays import I64
from fsnl.cache.aside import new_hdf5
from fsnl.cache.checksums import changed_groups, seal
from fsnl.cache.errors import FormatError, FsnlError, OccupiedError, WriteError
from fsnl.cache.fingerprint import canonical_json
from fsnl.cache.schema import FORMAT_VERSION, Json

# Attributes live in the object's header: HDF5 allows 64 KiB there.
MAX_ATTRIBUTE_BYTES = 60_000
ALIGNMENT = 64

NOUNS = {"fsnl.features": "feature store", "fsnl.episodes": "episode file", "fsnl.results": "result file"}

# What h5py, and our own reading of what it returns, raise on spoiled bytes.
_SPOILED = (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


@contextlib.contextmanager
def written_aside(
    path: Path, *, file_format: str, overwrite: bool, aside: Path | None = None
) -> Iterator[h5py.File]:
    """A new HDF5 file, written beside `path` and renamed to it when whole.

    Args:
        path: the final place; nothing appears there before the file is complete.
        file_format: one of the names in `fsnl.cache.schema`, stored with version and origin.
        overwrite: whether something at `path` may be replaced.
        aside: where it is written meanwhile, on the same file system; None for a new name beside `path`.

    Yields:
        The open file.

    Raises:
        OccupiedError: something lies at `path` and `overwrite` is false.
        WriteError: no such folder, no permission, no space.
    """
    check_vacant(path, overwrite=overwrite)
    aside = aside or _new_name(path)
    try:
        with write_errors(path):
            with new_hdf5(
                aside, libver="latest", alignment_threshold=1, alignment_interval=ALIGNMENT
            ) as file:
                set_text(file, "format", file_format)
                file.attrs["format_version"] = FORMAT_VERSION
                set_text(file, "created_by", f"fsnl {metadata.version('fsnl')}")
                set_text(file, "created", datetime.now(timezone.utc).isoformat(timespec="seconds"))
                yield file
                seal(file)
            publish(aside, path, overwrite=overwrite)
    finally:
        aside.unlink(missing_ok=True)


def check_vacant(path: Path, *, overwrite: bool) -> None:
    """Refuse early what cannot be written later: an occupied path, a missing or closed folder."""
    with write_errors(path):  # no permission to look, a name too long
        is_folder, is_there, has_folder = path.is_dir(), path.exists(), path.parent.is_dir()
        is_special = is_there and not is_folder and not path.is_file()
        leads_nowhere = path.is_symlink() and not is_there
    if is_folder:
        raise OccupiedError(path, "is a folder; name a file")
    if is_special:
        raise OccupiedError(path, "is no file but a device, pipe or socket; name a file")
    if leads_nowhere:
        raise OccupiedError(path, "is a link to a file that is not there; remove it, or use another --out")
    if is_there and not overwrite:
        raise OccupiedError(path, "exists already; use another --out, or --force to replace it")
    if not has_folder:
        raise WriteError(path, f"there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise WriteError(path, f"no permission to write in {path.parent.absolute()}")


def _new_name(path: Path) -> Path:
    """An empty file beside `path`, of a name that nobody uses."""
    try:
        # A name may have 255 bytes, and a character of it four.
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise WriteError(path, _reason(error)) from error
    os.close(handle)
    return Path(name)


def publish(aside: Path, path: Path, *, overwrite: bool) -> None:
    """Give the whole file its name, on disk before it is visible."""
    umask = os.umask(0)
    os.umask(umask)
    aside.chmod(0o666 & ~umask)
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    if not overwrite:
        try:  # a hard link, unlike a rename, does not replace what somebody else put there meanwhile
            os.link(aside, path)
        except FileExistsError as error:
            raise OccupiedError(path, "exists already, written meanwhile by another process") from error
        except OSError:
            pass  # a file system without hard links
        else:
            return
    aside.replace(path)


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """What the system refuses while the block writes a file, as `WriteError`."""
    try:
        yield
    except OSError as error:
        raise WriteError(path, f"could not be written: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The system's own words, dug out of HDF5's where needed."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    inner = re.search(r"error message = '([^']*)'", str(error))
    return inner.group(1) if inner else " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def opened(path: Path, *, file_format: str) -> Iterator[h5py.File]:
    """An existing file of ours, open for reading.

    When the block ends, attributes and structure are held against their checksums: what was read of them
    is as it was written. The bytes of data sets are not (see `fsnl.cache.verify`).

    Raises:
        FormatError: not there, not HDF5, not of this format, incomplete, damaged, or of an unknown version.
    """
    noun = NOUNS[file_format]
    try:
        is_folder, is_there, is_file = path.is_dir(), path.exists(), path.is_file()
    except OSError as error:  # no permission to look, a name too long
        raise FormatError(path, f"cannot be read: {_reason(error)}") from error
    if is_folder:
        raise FormatError(path, f"is a folder, needed {_a(noun)}")
    if not is_there:
        raise FormatError(path, f"no such {noun}")
    if not is_file:
        raise FormatError(path, f"is a device, pipe or socket, needed {_a(noun)}")
    try:
        with h5py.File(path, "r", locking=False) as file:
            _check_format(path, file, file_format=file_format)
            yield file
            _check_attributes(path, file)
    except FsnlError:
        raise
    except PermissionError as error:
        raise FormatError(path, "no permission to read it") from error
    except _SPOILED as error:
        raise FormatError(path, _damage(path, error, noun=noun)) from error


def _damage(path: Path, error: Exception, *, noun: str) -> str:
    """In words, what is wrong with a file that could not be read to the end."""
    if isinstance(error, KeyError):
        return f"damaged {noun}: {error.args[0]}; make it again"
    if path.stat().st_size and not h5py.is_hdf5(path):
        return f"not an HDF5 file, needed {_a(noun)}"
    return f"truncated or damaged {noun} ({_reason(error)}); make it again"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "eH" else f"a {noun}"


def _check_format(path: Path, file: h5py.File, *, file_format: str) -> None:
    found = text_attribute(file, "format") if "format" in file.attrs else None
    if found != file_format:
        other = NOUNS.get(found or "", "HDF5 file that fsnl did not make")
        raise FormatError(path, f"is {_a(other)}, needed {_a(NOUNS[file_format])}")
    version = int(file.attrs["format_version"])
    if version != FORMAT_VERSION:
        advice = "update fsnl" if version > FORMAT_VERSION else "make the file again"
        raise FormatError(path, f"format_version {version}, this fsnl reads {FORMAT_VERSION}; {advice}")


def _check_attributes(path: Path, file: h5py.File) -> None:
    changed = next(changed_groups(file), None)
    if changed is not None:
        reason = f"attributes or arrays of {changed} are not as they were written"
        raise FormatError(path, f"damaged or edited: {reason}; make it again")


def set_text(node: h5py.HLObject, name: str, text: str) -> None:
    """Store an attribute as fixed-length UTF-8."""
    data = text.encode()
    if len(data) > MAX_ATTRIBUTE_BYTES:
        msg = f"attribute {name} has {len(data)} bytes, more than {MAX_ATTRIBUTE_BYTES}"
        raise ValueError(msg)
    node.attrs.create(name, np.array(data, dtype=h5py.string_dtype("utf-8", max(1, len(data)))))


def text_attribute(node: h5py.HLObject, name: str) -> str:
    """An attribute stored as text."""
    if name not in node.attrs:
        msg = f"attribute {name} of {node.name} is missing"
        raise KeyError(msg)
    value = node.attrs[name]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return value
    msg = f"attribute {name} is not text"
    raise KeyError(msg)


def set_json(node: h5py.HLObject, name: str, value: Json) -> None:
    """Store an attribute as JSON text."""
    set_text(node, name, canonical_json(value))


def json_attribute(node: h5py.HLObject, name: str) -> Json:
    """An attribute stored as JSON text."""
    try:
        value: Json = json.loads(text_attribute(node, name))
    except ValueError as error:
        msg = f"attribute {name} is not JSON"
        raise KeyError(msg) from error
    return value


def write_texts(group: h5py.Group, name: str, texts: Sequence[str]) -> None:
    """Store N texts as a data set of fixed-length UTF-8, shape (N,)."""
    data = [text.encode() for text in texts]
    length = max([1, *map(len, data)])
    group.create_dataset(name, data=np.array(data, dtype=h5py.string_dtype("utf-8", length)))


def read_texts(group: h5py.Group, name: str) -> tuple[str, ...]:
    """The texts of such a data set."""
    data = group[name][()]
    if data.ndim != 1 or data.dtype.kind not in "SO":
        msg = f"{group[name].name} is not a list of texts"
        raise KeyError(msg)
    try:
        return tuple(item.decode() for item in data.tolist())
    except UnicodeDecodeError as error:
        msg = f"{group[name].name} holds text that is not UTF-8"
        raise KeyError(msg) from error


def read_integers(group: h5py.Group, name: str, *, ndim: int) -> I64:
    """An integer data set as int64."""
    data = group[name][()]
    if data.ndim != ndim or data.dtype.kind not in "iu":
        msg = f"{group[name].name} is not an integer array of {ndim} dimensions"
        raise KeyError(msg)
    return np.asarray(data, dtype=np.int64)
