"""Images in one array, pickled with their labels: `image_data` and `class_dict`, or `data` and `labels`.

The file is read by `fsnl.cache.pickles`: nothing that it names is run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fsnl.cache.arrays import I64, U8
from fsnl.cache.errors import DatasetError, PickleError
from fsnl.cache.pickles import read_pickle
from fsnl.pipeline.datasets.guess import kind_of_file
from fsnl.pipeline.datasets.names import printable, some_of

_DATA_KEYS = ("image_data", "data")
_LABEL_KEYS = ("labels", "label")
_NAME_KEYS = ("catname2label", "catnametolabel")


@dataclass(frozen=True, slots=True)
class LabelledArray:
    """Images with the class of each.

    Attributes:
        pixels: (N, H, W, 3) uint8 RGB.
        labels: (N,) int64, places in `names`.
        names: what the classes are called there: all text, or all integers.
    """

    pixels: U8
    labels: I64
    names: tuple[str, ...] | tuple[int, ...]


def read_labelled_array(path: Path) -> LabelledArray:
    """Images and classes of a pickle in either form.

    Raises:
        DatasetError: no pickle, a damaged one, or one that holds something else.
    """
    held = _mapping(path)
    where = printable(path)
    data = next((held[key] for key in _DATA_KEYS if key in held), None)
    listed = next((held[key] for key in _LABEL_KEYS if key in held), None)
    members = held.get("class_dict")
    if data is None or (listed is None and members is None):
        keys = some_of(sorted(held)) or "nothing"
        msg = f"{where}: holds {keys}; needed are image_data and class_dict, or data and labels"
        raise DatasetError(msg)
    pixels = _pixels(data, where=where)
    if members is not None:
        labels, names = _of_members(members, n_images=len(pixels), where=where)
        return LabelledArray(pixels, labels, names)
    numbers, labels = _of_labels(listed, n_images=len(pixels), where=where)
    named: dict[Any, Any] = next((held[key] for key in _NAME_KEYS if isinstance(held.get(key), dict)), {})
    return LabelledArray(pixels, labels, _named(numbers, named))


def _mapping(path: Path) -> dict[str, Any]:
    """The dict that a pickle holds, its keys as text."""
    where = printable(path)
    if kind := kind_of_file(path):
        msg = f"{where}: no pickle: this is {kind}"
        raise DatasetError(msg)
    try:
        held = read_pickle(path)
    except PickleError as error:
        cut = any(word in str(error).lower() for word in ("truncated", "ran out of input"))
        msg = f"{error}; it was cut short: download it again" if cut else str(error)
        raise DatasetError(msg) from error
    if not isinstance(held, dict):
        msg = f"{where}: holds a {type(held).__name__}; needed is a dict with image_data and class_dict,"
        msg += " or with data and labels"
        raise DatasetError(msg)
    return {_as_text(key): value for key, value in held.items()}


def _as_text(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def _pixels(data: object, *, where: str) -> U8:
    """(N, H, W, 3) uint8, or `DatasetError` that says what to do about it."""
    if not isinstance(data, np.ndarray) or data.ndim != 4:
        held = f"of shape {data.shape}" if isinstance(data, np.ndarray) else f"a {type(data).__name__}"
        msg = f"{where}: its images are {held}; needed is one array of shape (N, height, width, 3)"
        raise DatasetError(msg)
    if data.dtype != np.uint8:
        msg = f"{where}: its images are {data.dtype}; needed is uint8, 0 to 255: save them so"
        raise DatasetError(msg)
    if data.shape[3] != 3:
        msg = f"{where}: its images are of shape {data.shape}; needed is (N, height, width, 3)"
        first = data.shape[1] == 3
        raise DatasetError(msg + ": channels come last, save data.transpose(0, 2, 3, 1)" if first else msg)
    if 0 in data.shape:
        msg = f"{where}: no image in it, its array is of shape {data.shape}"
        raise DatasetError(msg)
    return data


def _of_members(members: object, *, n_images: int, where: str) -> tuple[I64, tuple[str, ...]]:
    """Labels and names of `class_dict`, class -> rows: every row once."""
    if not isinstance(members, dict) or not members:
        msg = f"{where}: class_dict is no dict of classes with their rows"
        raise DatasetError(msg)
    rows_of = {_as_text(name): _rows(rows, _as_text(name), where=where) for name, rows in members.items()}
    names = tuple(rows_of)
    rows = np.concatenate(list(rows_of.values()))
    owners = np.repeat(np.arange(len(names)), [len(own) for own in rows_of.values()])
    if rows.min() < 0 or rows.max() >= n_images:
        msg = f"{where}: class_dict has row {rows.max()}, of {n_images} images; the file is spoiled"
        raise DatasetError(msg)
    order = np.argsort(rows, kind="stable")
    twice = np.flatnonzero(np.diff(rows[order]) == 0)
    if len(twice):
        first, second = (names[owners[order[place]]] for place in (twice[0], twice[0] + 1))
        msg = f"{where}: class_dict has row {rows[order[twice[0]]]} twice, in {first!r} and in {second!r}"
        raise DatasetError(msg)
    if len(rows) < n_images:
        msg = f"{where}: {n_images - len(rows)} of {n_images} images are in no class of class_dict"
        raise DatasetError(msg)
    return owners[order].astype(np.int64), names


def _rows(rows: object, name: str, *, where: str) -> I64:
    try:
        array = np.asarray(rows)
    except ValueError:
        array = np.asarray(None)
    if array.size == 0 and array.ndim == 1:
        msg = f"{where}: class {name!r} is empty"
        raise DatasetError(msg)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        msg = f"{where}: the rows of class {name!r} in class_dict are no list of integers"
        raise DatasetError(msg)
    return array.astype(np.int64)


def _of_labels(listed: object, *, n_images: int, where: str) -> tuple[tuple[str, ...] | tuple[int, ...], I64]:
    """Distinct labels, sorted as numbers or text, and the place of each image's label among them."""
    try:
        array = np.asarray(listed)
    except ValueError:
        array = np.asarray(None)
    if array.ndim != 1 or array.dtype.kind not in "iuSU":
        msg = f"{where}: its labels are no list of integers or names"
        raise DatasetError(msg)
    if len(array) != n_images:
        msg = f"{where}: {n_images} images and {len(array)} labels; the file is spoiled, get it again"
        raise DatasetError(msg)
    distinct, labels = np.unique(array, return_inverse=True)
    if array.dtype.kind in "iu":
        return tuple(int(label) for label in distinct), labels.astype(np.int64)
    return tuple(_as_text(label) for label in distinct.tolist()), labels.astype(np.int64)


def _named(
    keys: tuple[str, ...] | tuple[int, ...], numbers: Mapping[Any, Any]
) -> tuple[str, ...] | tuple[int, ...]:
    """The names that a file gives to its numbers; the numbers where it does not name each, differently."""
    known = (int, np.integer)
    names = {int(number): _as_text(name) for name, number in numbers.items() if isinstance(number, known)}
    chosen = [names[key] for key in keys if isinstance(key, int) and key in names]
    return tuple(chosen) if len(set(chosen)) == len(keys) else keys
