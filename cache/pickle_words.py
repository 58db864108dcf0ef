"""What a pickle may name, and what stands for it: checked stand-ins that build arrays and containers."""

import math
import pickle
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

# Booleans, integers, floats, bytes, text and Python objects, by the names that NumPy writes.
_DTYPE = re.compile(r"[<>=|]?(b1|i[1248]|u[1248]|f[248]|[SU][1-9]\d{0,8}|O[48]?)")


class Maker:
    """A function that pickles may call and can do nothing else with."""

    __slots__ = ("_make",)
    __hash__ = None  # type: ignore[assignment]
    _make: Callable[..., object]

    def __init__(self, make: Callable[..., object]) -> None:
        object.__setattr__(self, "_make", make)

    def __call__(self, *arguments: object) -> object:
        return self._make(*arguments)

    def __setstate__(self, state: object) -> NoReturn:
        msg = "it changes a function"
        raise pickle.UnpicklingError(msg)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        self.__setstate__(value)


class DTypePart:
    """A dtype while its pickle is read: a checked name, then its byte order."""

    __slots__ = ("native", "order")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: object, *flags: object) -> None:
        found = _DTYPE.fullmatch(_text(name))
        if found is None:
            msg = f"arrays of dtype {name!r} are not read; save plain numbers or text"
            raise pickle.UnpicklingError(msg)
        self.native = np.dtype("O" if found[1].startswith("O") else found[1])
        self.order = "="

    def __setstate__(self, state: object) -> None:
        """(version, byte order, subarray, names, fields, item size, alignment, flags, ...)"""
        if not isinstance(state, tuple) or len(state) < 8 or state[2:5] != (None, None, None):
            msg = "arrays of structured dtype are not read; save plain numbers or text"
            raise pickle.UnpicklingError(msg)
        order = _text(state[1])
        if order not in ("<", ">", "=", "|"):
            msg = f"{order!r} is no byte order"
            raise pickle.UnpicklingError(msg)
        self.order = order

    def array(self, data: object) -> npt.NDArray[Any]:
        """(n,) array over raw bytes, in native byte order; no copy where it is that already."""
        if self.native.hasobject:
            msg = "raw bytes given for an array of objects"
            raise pickle.UnpicklingError(msg)
        stored = self.native.newbyteorder(self.order)  # type: ignore[arg-type]
        raw = data.encode("latin1") if isinstance(data, str) else data
        if not isinstance(raw, bytes | bytearray):
            msg = f"an array's data are a {type(raw).__name__}"
            raise pickle.UnpicklingError(msg)
        return np.frombuffer(raw, dtype=stored).astype(self.native, copy=False)


class ArrayPart:
    """An array while its pickle is read."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.value: npt.NDArray[Any] = np.empty(0)

    def __setstate__(self, state: object) -> None:
        """(version, shape, dtype, whether in Fortran order, bytes or list of objects)"""
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], DTypePart):
            msg = "an array without shape, dtype and data"
            raise pickle.UnpicklingError(msg)
        _, shape, dtype, fortran, data = state
        flat = _objects(data) if dtype.native.hasobject else dtype.array(data)
        self.value = flat.reshape(_shape(shape, n_items=flat.size), order="F" if fortran else "C")


def _text(value: object) -> str:
    """A short name, as text."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        msg = f"a {type(value).__name__} where a name should be"
        raise pickle.UnpicklingError(msg)
    return value


def _shape(shape: object, *, n_items: int) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        msg = f"{shape!r} is no shape"
        raise pickle.UnpicklingError(msg)
    if math.prod(shape) != n_items:
        msg = f"an array of shape {shape} with {n_items} values"
        raise pickle.UnpicklingError(msg)
    return shape


def _objects(items: object) -> npt.NDArray[Any]:
    """(n,) array of objects."""
    if not isinstance(items, list):
        msg = "an array of objects without a list of them"
        raise pickle.UnpicklingError(msg)
    array = np.empty(len(items), dtype=object)
    for position, item in enumerate(items):  # at once, NumPy would look into items that are lists
        array[position] = item
    return array


def _reconstruct(kind: object, shape: object, name: object) -> ArrayPart:
    """NumPy's first half of an array: an empty one, whose state follows."""
    if kind is not _NDARRAY:
        msg = "an array of a class that is not NumPy's own"
        raise pickle.UnpicklingError(msg)
    return ArrayPart()


def _from_buffer(data: object, dtype: object, shape: object, order: object, axes: object = None) -> ArrayPart:
    """NumPy's arrays in protocol 5."""
    array = ArrayPart()
    fortran = order == "F"
    array.__setstate__((1, shape, dtype, fortran, data))
    if order == "K":
        array.value = array.value.transpose(axes)  # type: ignore[call-overload]
    return array


def _scalar(dtype: object, data: object = b"") -> object:
    if not isinstance(dtype, DTypePart):
        msg = "a scalar without dtype"
        raise pickle.UnpicklingError(msg)
    return dtype.array(data).reshape(())[()]


def _encode(text: object, encoding: object = "latin1") -> bytes:
    """How protocols before 3 hold bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        msg = f"bytes encoded as {encoding!r}"
        raise pickle.UnpicklingError(msg)
    return text.encode("latin1")


def _bytearray(data: object = b"", encoding: object = "latin1") -> bytearray:
    if isinstance(data, str):
        data = _encode(data, encoding)
    if not isinstance(data, bytes):  # of a number it would make that many zero bytes
        msg = f"bytes made of a {type(data).__name__}"
        raise pickle.UnpicklingError(msg)
    return bytearray(data)


def _bytes(data: object = b"") -> bytes:
    return bytes(_bytearray(data))


def _set(items: object = ()) -> set[object]:
    return set(_sequence(items))


def _frozenset(items: object = ()) -> frozenset[object]:
    return frozenset(_sequence(items))


def _list(items: object = ()) -> list[object]:
    return list(_sequence(items))


def _sequence(items: object) -> "list[object] | tuple[object, ...]":
    if not isinstance(items, list | tuple):
        msg = f"a container made of a {type(items).__name__}"
        raise pickle.UnpicklingError(msg)
    return items


def _dict(items: Any = ()) -> dict[object, object]:
    """An `OrderedDict`: of pairs, or empty and filled afterwards."""
    return dict(items)


def _default_dict(factory: object = None, items: Any = ()) -> dict[object, object]:
    return dict(items)


_NDARRAY = Maker(_reconstruct)
# By the names of Python 3 and NumPy 1; `_vocabulary` adds the others.
_MAKERS: dict[str, Callable[..., object]] = {
    "numpy.dtype": DTypePart,
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _from_buffer,
    "_codecs.encode": _encode,
    "collections.OrderedDict": _dict,
    "collections.defaultdict": _default_dict,
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytearray,
    "builtins.set": _set,
    "builtins.frozenset": _frozenset,
    "builtins.list": _list,
    "builtins.dict": _dict,
}


def _vocabulary() -> dict[tuple[str, str], object]:
    """(module, name) -> what stands for it, in every spelling of Python 2 and 3, NumPy 1 and 2."""
    words: dict[tuple[str, str], object] = {("numpy", "ndarray"): _NDARRAY}
    respelled = {"numpy.core.": "numpy._core.", "builtins": "__builtin__"}
    for full_name, make in _MAKERS.items():
        module, _, name = full_name.rpartition(".")
        maker = Maker(make)
        words[module, name] = maker
        for new, old in respelled.items():
            words[module.replace(new, old), name] = maker
    return words


VOCABULARY = _vocabulary()
