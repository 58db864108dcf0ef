"""Pickles of NumPy arrays and plain containers, read without running anything that they ask for.

A pickle is a program: it names functions of any installed module and calls them. Features and images are
passed around as pickles all the same, so they are read here with a vocabulary of our own
(`fsnl.cache.pickle_words`). Nothing is imported or called by name, every name outside the vocabulary is
refused and given in the error, and dtypes and array states are checked before NumPy sees them: a forged
dtype could make it take bytes of the file for pointers.

Read are protocols 0 to 5, of Python 2 and 3, of NumPy 1 (`numpy.core`) and 2 (`numpy._core`). What comes
out holds None, bool, int, float, str, bytes, bytearray, list, tuple, set, frozenset, dict, NumPy arrays
and NumPy scalars. An `OrderedDict` or `defaultdict` comes out as a dict, in its order.

Python 2 does not tell text from bytes: each of its strings comes out as str with one character per byte
(latin-1), so that keys are equal to str. `text.encode("latin1")` gives the bytes back, whatever they are.
"""

import os
import pickle
import pickletools
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from fsnl.cache.errors import PickleError
from fsnl.cache.pickle_words import VOCABULARY, ArrayPart, DTypePart, Maker

_ADVICE = "fsnl reads NumPy arrays, numbers, text and plain containers only, and ran nothing of it"

_OPERATIONS = {operation.code.encode("latin1"): operation for operation in pickletools.opcodes}
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}

# What the unpickler and our own checks raise on bytes that are no pickle, or a spoiled one.
_SPOILED = (
    pickle.UnpicklingError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    EOFError,
    ImportError,
    BufferError,
)


def read_pickle(path: Path | str) -> object:
    """What a pickle file holds; arrays are in native byte order, and may be read-only.

    Raises:
        PickleError: not there, not a pickle, damaged, or it names anything but arrays and containers.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            return unpickle(file, path=path)
    except OSError as error:
        raise PickleError(path, f"cannot be read: {error.strerror or error}") from error


def unpickle(file: BinaryIO, *, path: Path | str) -> object:
    """The first pickle from a file's position on; see `read_pickle`.

    Args:
        file: open for reading.
        path: what errors call it.

    Raises:
        PickleError: as `read_pickle` does.
    """
    try:
        _check_sizes(file)
        return _Plain().of(_Unpickler(file, path=Path(path)).load())
    except RecursionError as error:
        raise PickleError(path, "containers nested too deeply") from error
    except _SPOILED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PickleError(path, f"not a pickle, or a damaged one: {reason}") from error


def _check_sizes(file: BinaryIO) -> None:
    """Walk over the operations, and refuse what Python would make room for before it finds it amiss.

    That is a text, bytes or frame that reaches past the end of the file, and a number for an object (there
    are up to 2**32) that is higher than the count of bytes so far.
    """
    start = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(start)
    while (code := file.read(1)) not in (b".", b""):
        position = file.tell()
        operation = _OPERATIONS[code]
        n_bytes = operation.arg.n if operation.arg else 0
        if n_bytes == pickletools.UP_TO_NEWLINE:
            argument = file.readline()
            if operation.name in ("GLOBAL", "INST"):  # two names
                file.readline()
            number = int(argument) if operation.name == "PUT" else 0
        elif n_bytes >= 0:
            number = int.from_bytes(file.read(n_bytes), "little") if operation.name.endswith("PUT") else 0
            file.seek(position + n_bytes)
        else:
            number = 0
            n_length = _LENGTH_BYTES[n_bytes]
            length = int.from_bytes(file.read(n_length), "little")
            if position + n_length + length > end:
                msg = f"{length} bytes announced at byte {position - start}, more than there are"
                raise pickle.UnpicklingError(msg)
            file.seek(position + n_length + length)
        if number > position - start:
            msg = f"object number {number} at byte {position - start}"
            raise pickle.UnpicklingError(msg)
    file.seek(start)


class _Unpickler(pickle.Unpickler):
    """Python's own unpickler, whose only way to the outside is closed."""

    def __init__(self, file: BinaryIO, *, path: Path) -> None:
        super().__init__(file, fix_imports=False, encoding="latin1")
        self._path = path

    def find_class(self, module_name: str, global_name: str) -> object:
        known = VOCABULARY.get((module_name, global_name))
        if known is None:
            self._refuse(f"{module_name}.{global_name}")
        return known

    def persistent_load(self, pid: object) -> NoReturn:
        self._refuse(f"an object outside the file, {pid!r}")

    def _refuse(self, name: str) -> NoReturn:
        shown = name if name.isprintable() else repr(name)
        raise PickleError(self._path, f"refused, for it asks for {shown[:200]}; {_ADVICE}")


class _Plain:
    """Arrays in the place of what stood for them, in containers however nested, shared or cyclic."""

    def __init__(self) -> None:
        # By id: what was seen, kept alive so that no other takes its id, and what it became.
        self._seen: dict[int, tuple[object, object]] = {}

    def of(self, value: object) -> object:
        """The value itself, lists and dicts changed in place."""
        if isinstance(value, DTypePart | Maker):
            msg = "a dtype or function by itself, where data should be"
            raise pickle.UnpicklingError(msg)
        if not isinstance(value, _HOLDERS):
            return value
        if id(value) not in self._seen:
            self._seen[id(value)] = (value, _UNFINISHED if isinstance(value, tuple) else value)
            self._seen[id(value)] = (value, self._converted(value))
        converted = self._seen[id(value)][1]
        if converted is _UNFINISHED:
            msg = "a tuple that holds itself"
            raise pickle.UnpicklingError(msg)
        return converted

    def _converted(
        self, value: "list[Any] | dict[object, object] | tuple[object, ...] | ArrayPart"
    ) -> object:
        if isinstance(value, tuple):
            return tuple(self.of(item) for item in value)
        if isinstance(value, dict):  # its keys can be hashed, and hold none of ours
            for key, item in value.items():
                value[key] = self.of(item)
            return value
        if isinstance(value, list):
            value[:] = [self.of(item) for item in value]
            return value
        array = value.value
        self._seen[id(value)] = (value, array)
        if array.dtype.hasobject:
            flat = array.ravel("K")  # a view: its values lie without gaps
            for position, item in enumerate(flat):
                flat[position] = self.of(item)
        return array


_HOLDERS = (list, dict, tuple, ArrayPart)
_UNFINISHED = object()
