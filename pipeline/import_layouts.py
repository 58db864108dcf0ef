"""Features that others' programs wrote, by the layouts that people pass around.

* A pickled dict, class -> list of vectors: `output.plk` of PT-MAP and S2M2; SimpleShot's holds a list of
  four, [mean, mean, dict, dict], of which the first dict has the features and the second its logits.
* HDF5 with `all_feats`, `all_labels` and `count`: CloserLookFewShot and S2M2. Rows from `count` on were
  never filled; a row of zeros before that is a row like any other.
* A torch tensor (classes, images, D): EASY. Classes have no names there: they are numbers.
* `.npz` with the features and their labels, by their usual names; `.npy` of features (N, D) with the labels
  in another `.npy`, or of (classes, images, D).
"""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fsnl.cache.arrays import I64
from fsnl.cache.errors import DatasetError
from fsnl.cache.foreign_hdf5 import is_hdf5, read_root_arrays
from fsnl.cache.numpy_files import read_npy, read_npz
from fsnl.cache.pickles import read_pickle

FEATURE_NAMES = ("features", "feats", "embeddings", "all_feats", "x", "data")
LABEL_NAMES = ("labels", "label", "all_labels", "targets", "y")

# An array of any real dtype.
Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ImportedFeatures:
    """Features with their classes, in the order of the file.

    Attributes:
        layout: in words, what was found.
        embeddings: (N, D) of any real dtype.
        class_names: C names, sorted by code point.
        labels: (N,) int64, into `class_names`.
        image_ids: N names: the place in the file.
    """

    layout: str
    embeddings: Numbers
    class_names: tuple[str, ...]
    labels: I64
    image_ids: tuple[str, ...]


def read_features(path: Path, *, labels: Path | None = None) -> ImportedFeatures:
    """Read a file of features.

    Args:
        path: of any layout above; which one is told by its content.
        labels: a `.npy` file of N labels, for features that come without.

    Raises:
        PickleError, FormatError: a file that is damaged, or asks to run something.
        DatasetError: not there, or of no layout that is known.
    """
    if not path.is_file():
        msg = f"{path}: no such file"
        raise DatasetError(msg)
    given = None if labels is None else read_npy(labels)
    content = _content(path)
    if isinstance(content, Mapping) and _has_names(content, labels=given):
        return _by_names(path, content, labels=given)
    if isinstance(content, np.ndarray) and content.dtype != object:
        return _of_array(path, content, labels=given)
    if given is not None:
        _refuse(path, "a dict of classes has its labels already; leave --labels out")
    if isinstance(content, np.ndarray) and content.shape == ():  # a dict that numpy.save took
        content = content[()]
    if isinstance(content, list | tuple):
        content = next((part for part in content if isinstance(part, Mapping)), content)
    if not isinstance(content, Mapping) or not content:
        _refuse(path, f"holds a {type(content).__name__}, of no layout that fsnl-import knows (see --help)")
    return _by_class(path, content)


def _content(path: Path) -> object:
    """What a file holds: an array, or a dict of arrays, or whatever a pickle holds."""
    if is_hdf5(path):
        return read_root_arrays(path)
    with path.open("rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        return read_npy(path)
    if zipfile.is_zipfile(path) and not _is_torch(path):
        return read_npz(path)
    if zipfile.is_zipfile(path) or path.suffix in (".pt", ".pth"):
        from fsnl.pipeline.import_torch import read_torch

        return read_torch(path)
    return read_pickle(path)


def _is_torch(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("data.pkl") for name in archive.namelist())


def _find(content: Mapping[Any, object], names: Sequence[str]) -> str | None:
    """The key that goes by one of these names, in lower or upper case."""
    by_name = {key.lower(): key for key in content if isinstance(key, str)}
    return next((by_name[name] for name in names if name in by_name), None)


def _has_names(content: Mapping[Any, object], *, labels: Numbers | None) -> bool:
    """Whether these are arrays by their usual names; a class may be called `x` or `data`, too."""
    has_labels = labels is not None or _find(content, LABEL_NAMES) is not None
    return _find(content, FEATURE_NAMES) is not None and (has_labels or len(content) == 1)


def _by_names(path: Path, content: Mapping[Any, object], *, labels: Numbers | None) -> ImportedFeatures:
    name = _find(content, FEATURE_NAMES)
    features, found = np.asarray(content[name]), _find(content, LABEL_NAMES)
    if found is not None:
        if labels is not None:
            _refuse(path, f"has labels already, as {found!r}; leave --labels out")
        labels = np.asarray(content[found])
    count = content.get("count")
    if count is not None:  # CloserLookFewShot: space for all batches was made in advance
        n_filled = int(np.asarray(count).ravel()[0])
        features, labels = features[:n_filled], None if labels is None else labels[:n_filled]
    return _of_array(path, features, labels=labels, layout=f"array {name!r}")


def _of_array(
    path: Path, features: Numbers, *, labels: Numbers | None, layout: str = "array"
) -> ImportedFeatures:
    if features.dtype.kind not in "fiub":
        _refuse(path, f"features are of dtype {features.dtype}, needed are real numbers")
    if labels is None:
        if features.ndim != 3:
            reason = f"features of shape {features.shape} come without labels; name a .npy file of them"
            _refuse(path, f"{reason} with --labels, or use shape (classes, images, D)")
        n_classes, n_images = features.shape[:2]
        layout = f"{layout} (classes, images, D)"
        labels = np.repeat(np.arange(n_classes), n_images)
        features = features.reshape(n_classes * n_images, -1)
    labels = np.asarray(labels).ravel()
    if features.ndim < 2 or len(features) != len(labels) or not len(labels):
        _refuse(path, f"features of shape {features.shape} with {len(labels)} labels: needed are N and N")
    names, numbers = _names(path, labels.tolist())
    width = len(str(len(labels) - 1))
    return ImportedFeatures(
        layout=f"{layout}, {features.dtype}",
        embeddings=features.reshape(len(features), -1),
        class_names=names,
        labels=numbers,
        image_ids=tuple(f"{row:0{width}d}" for row in range(len(labels))),
    )


def _by_class(path: Path, content: Mapping[Any, object]) -> ImportedFeatures:
    parts: list[Numbers] = []
    keys: list[object] = []
    for key, vectors in content.items():
        try:
            part = np.asarray(vectors)
            part = part.reshape(len(part), -1)
        except (TypeError, ValueError):
            part = np.empty((0, 0), object)
        if part.dtype.kind not in "fiub" or not part.size or (parts and part.shape[1] != parts[0].shape[1]):
            _refuse(path, f"class {key!r} has no list of vectors, all of one length")
        parts.append(part)
        keys.append(key)
    names, numbers = _names(path, keys)
    counts = [len(part) for part in parts]
    width = len(str(max(counts) - 1))
    return ImportedFeatures(
        layout=f"dict of {len(parts)} classes, {parts[0].dtype}",
        embeddings=np.concatenate(parts),
        class_names=names,
        labels=np.repeat(numbers, counts),
        image_ids=tuple(
            f"{names[number]}/{i:0{width}d}"
            for number, n in zip(numbers, counts, strict=True)
            for i in range(n)
        ),
    )


def _names(path: Path, labels: Sequence[object]) -> tuple[tuple[str, ...], I64]:
    """Class names sorted by code point, and the place of each label among them; numbers are zero-padded."""
    numeric = all(isinstance(label, int | float | np.integer | np.floating) for label in labels)
    if numeric:
        values = [int(label) for label in labels]  # type: ignore[call-overload]
        if values != list(labels):
            _refuse(path, "labels are not whole numbers")
        width = max(len(str(value)) for value in values)
        texts = [f"{value:0{width}d}" for value in values]
    else:
        texts = [label.decode() if isinstance(label, bytes) else str(label) for label in labels]
    names = tuple(sorted(set(texts)))
    if len(names) < 2:
        _refuse(path, f"has one class alone ({names[0]!r}); few-shot episodes need at least two")
    if any(not name or "\0" in name for name in names):
        _refuse(path, "has a class without a name")
    numbers = {name: number for number, name in enumerate(names)}
    return names, np.array([numbers[text] for text in texts], dtype=np.int64)


def _refuse(path: Path, reason: str) -> NoReturn:
    msg = f"{path}: {reason}"
    raise DatasetError(msg)
