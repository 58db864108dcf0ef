"""`.npy` and `.npz` files of others, arrays of Python objects included, with nothing in them run."""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fsnl.cache.errors import PickleError
from fsnl.cache.pickles import unpickle

# Plain numbers of more bytes than this are mapped, not read.
WHOLE_READ_BYTES = 1 << 26

_SPOILED = (
    *(zipfile.BadZipFile, zlib.error, ValueError, TypeError, SyntaxError, LookupError, MemoryError, EOFError),
    *(NotImplementedError, OverflowError, RuntimeError),
)


def read_npy(path: Path | str) -> npt.NDArray[Any]:
    """The array of a `.npy` file; a large one of plain numbers is mapped, read-only.

    Raises:
        PickleError: not there, not such a file, damaged, or its objects are not arrays and containers.
    """
    path = Path(path)
    with _errors(path), path.open("rb") as file:
        if path.stat().st_size > WHOLE_READ_BYTES and not _dtype(file).hasobject:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        file.seek(0)
        return _array(file, path=path)


def read_npz(path: Path | str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a `.npz` file, by name.

    Raises:
        PickleError: as `read_npy` does.
    """
    path = Path(path)
    with _errors(path), zipfile.ZipFile(path) as archive:
        arrays = {}
        for member in archive.namelist():
            with archive.open(member) as file:
                arrays[member.removesuffix(".npy")] = _array(file, path=path)  # type: ignore[arg-type]
        return arrays


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PickleError(path, f"cannot be read: {error.strerror or error}") from error
    except _SPOILED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PickleError(path, f"not a file of NumPy arrays, or a damaged one: {reason}") from error


def _array(file: BinaryIO, *, path: Path) -> npt.NDArray[Any]:
    dtype = _dtype(file)
    if not dtype.hasobject:
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    if dtype != np.dtype("O"):
        raise PickleError(path, f"holds an array of dtype {dtype}; save plain numbers or text")
    array = unpickle(file, path=path)
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise PickleError(path, f"says that it holds an array of objects, holds a {type(array).__name__}")
    return array


def _dtype(file: BinaryIO) -> np.dtype[Any]:
    """The dtype that a header states; the file's position is then after the header."""
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_2_0
    if version == (1, 0):
        read_header = np.lib.format.read_array_header_1_0
    _, _, dtype = read_header(file)
    return dtype
