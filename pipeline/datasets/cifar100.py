"""CIFAR-100 as published, for CIFAR-FS and FC100: `cifar-100-python/` or its tar.gz, both parts merged."""

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from fsnl.cache.arrays import I64, U8
from fsnl.cache.errors import DatasetError, PickleError
from fsnl.cache.pickles import unpickle
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.benchmarks import CIFAR100_CLASSES, Asked
from fsnl.pipeline.datasets.guess import kind_of_file
from fsnl.pipeline.datasets.image_set import benchmark_set
from fsnl.pipeline.datasets.names import one_spelling, printable, some_of
from fsnl.pipeline.datasets.pixel_arrays import list_array
from fsnl.pipeline.datasets.walk import visible

FOLDER = "cifar-100-python"
ARCHIVE = "cifar-100-python.tar.gz"
PARTS = ("train", "test")
SIDE = 32


def find_cifar100(place: Path, asked: Asked) -> Path | None:
    """PLACE/cifar-100-python, PLACE itself where it holds such files, its tar.gz, or a file of these."""
    if place.is_file():
        if place.name in (*PARTS, "meta"):
            return place.parent
        return place if place.name.lower().endswith((".tar.gz", ".tgz", ".tar")) else None
    for folder in (place / FOLDER, place):
        if folder.is_dir() and any((folder / part).is_file() for part in PARTS):
            return folder
    return place / ARCHIVE if (place / ARCHIVE).is_file() else None


def read_cifar100(path: Path, asked: Asked) -> ImageSet:
    """List the classes of one split out of CIFAR-100's own train and test, 600 images each.

    Only the images of the chosen classes are kept in memory.

    Args:
        path: the folder, or the archive.
        asked: data set, split, classes.

    Returns:
        Its images; an image id is `<class>/<filename>`, or `<part>-<place>` where filenames repeat.

    Raises:
        DatasetError: a part is missing, damaged, or not CIFAR-100.
    """
    where = printable(path)
    kept = asked.chosen(asked.published, where=where)
    numbers = [CIFAR100_CLASSES.index(name) for name in kept]
    pixels, labels, files, places = [], [], [], []
    for part, content in _parts(path):
        data, fine, names = _checked(content, where=f"{where}: {part}")
        rows = np.flatnonzero(np.isin(fine, numbers))  # (n,) of this part
        images = data[rows].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        pixels.append(np.ascontiguousarray(images))  # (n, 32, 32, 3)
        labels.append(fine[rows])
        places += [f"{part}-{row:05d}" for row in rows.tolist()]
        files += [f"{CIFAR100_CLASSES[fine[row]]}/{names[row]}" if names else "" for row in rows.tolist()]
    all_labels = np.concatenate(labels)
    present = [name for name, number in zip(kept, numbers, strict=True) if (all_labels == number).any()]
    if asked.wanted is not None and len(present) < len(kept):
        msg = f"{where}: no image of {some_of(sorted(set(kept).difference(present)))}"
        raise DatasetError(msg)
    listing, array = list_array(
        np.concatenate(pixels),
        all_labels,
        CIFAR100_CLASSES,
        kept=asked.chosen(present, where=where),
        split=asked.split,
        image_ids=files if len(set(files)) == len(files) else places,
    )
    return benchmark_set(asked, listing, image=array.image, size=array.size, where=f"CIFAR-100 at {where}")


def _parts(path: Path) -> Iterator[tuple[str, Any]]:
    """What train and test hold, one after the other."""
    if path.is_dir():
        names = {entry.name for entry in visible(path)}
        for part in PARTS:
            _require_part(part, names, where=printable(path))
            with _open(path / part) as file:
                yield part, _unpickled(file, path / part)
        return
    try:
        with tarfile.open(path) as archive:
            members = {Path(member.name).name: member for member in archive if member.isfile()}
            for part in PARTS:
                _require_part(part, set(members), where=printable(path))
                yield part, _unpickled(cast("BinaryIO", archive.extractfile(members[part])), path / part)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        kind = kind_of_file(path) or ""
        html = f"this is {kind}" if "HTML" in kind else f"damaged or cut short ({error}); download it again"
        msg = f"{printable(path)}: no tar archive of CIFAR-100: {html}"
        raise DatasetError(msg) from error


def _require_part(part: str, names: set[str], *, where: str) -> None:
    if part in names:
        return
    if any(name.startswith("data_batch") for name in names):
        msg = f"{where}: this is CIFAR-10; needed is CIFAR-100"
        raise DatasetError(msg)
    msg = f"{where}: no {part!r} in it; the few-shot splits take images of both train and test: get the rest"
    raise DatasetError(msg)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        msg = f"{printable(path)}: cannot be read: {error.strerror}"
        raise DatasetError(msg) from error


def _unpickled(file: BinaryIO, path: Path) -> object:
    try:
        return unpickle(file, path=path)
    except PickleError as error:
        kind = kind_of_file(path)
        raise DatasetError(f"{error}; this is {kind}" if kind else f"{error}; download it again") from error


def _checked(content: object, *, where: str) -> tuple[U8, I64, list[str]]:
    """Rows (N, 3072) uint8 with channels first, their fine labels (N,), and file names or none."""
    held = {_text(key): value for key, value in content.items()} if isinstance(content, dict) else {}
    data, labels = held.get("data"), held.get("fine_labels")
    if data is None or labels is None:
        keys = some_of(sorted(held)) or "nothing"
        msg = f"{where} holds {keys}; needed are data and fine_labels of CIFAR-100"
        raise DatasetError(msg)
    n_values = 3 * SIDE * SIDE
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (n_values,):
        msg = f"{where}: data is no uint8 array of shape (N, {n_values}); download it again"
        raise DatasetError(msg)
    fine = np.asarray(labels, dtype=np.int64)
    if fine.shape != (len(data),) or not np.isin(fine, range(len(CIFAR100_CLASSES))).all():
        msg = f"{where}: {len(data)} images and {len(fine)} labels, which must be 0 to 99; download it again"
        raise DatasetError(msg)
    names = [one_spelling(_text(name)) for name in held.get("filenames", ())]
    return data, fine, names if len(names) == len(data) else []


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
