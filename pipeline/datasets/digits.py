"""The embedded data set: the 1,797 handwritten digits that scikit-learn brings along, 8 x 8, ten classes."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsnl.cache.arrays import I64, U8
from fsnl.cache.errors import DatasetError
from fsnl.cache.schema import DatasetInfo, Listing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.names import choose_classes

SIDE = 8
SPLIT = "test"
_WHITE = 16  # the largest value in the source

# Of all 1,797 images as `read_digits` gives them, divided by 255; the three channels are equal.
MEAN = 0.3053
STD = 0.3759


@dataclass(frozen=True, slots=True)
class _Pixels:
    """(N, 8, 8) uint8 grey images, handed out as RGB."""

    grey: U8

    def image(self, row: int) -> U8:
        return np.repeat(self.grey[row][:, :, None], 3, axis=2)

    def size(self, row: int) -> tuple[int, int]:
        height, width = self.grey[row].shape
        return height, width


def read_digits(*, split: str = SPLIT, class_names: Sequence[str] | None = None) -> ImageSet:
    """List the embedded digits: classes `0` to `9`, image ids by their place in the source.

    Args:
        split: there is only `test`: all ten classes are novel.
        class_names: the classes to keep, None for all.

    Returns:
        Images of values 0 to 255, grey in three channels.

    Raises:
        DatasetError: another split, an unknown class, fewer than two classes.
    """
    if split != SPLIT:
        msg = f"digits has one split, {SPLIT!r}; asked for {split!r}"
        raise DatasetError(msg)
    values, digits = _source()
    names = choose_classes([str(digit) for digit in range(10)], wanted=class_names, where="digits")
    kept = np.flatnonzero(np.isin(digits, [int(name) for name in names]))
    rows = kept[np.argsort(digits[kept], kind="stable")]  # (N,) places in the source, by class, then place
    listing = Listing(
        split=SPLIT,
        class_names=names,
        labels=np.unique(digits[rows], return_inverse=True)[1].astype(np.int64),
        image_ids=tuple(f"{row:04d}" for row in rows),
        source_sizes=np.full(len(rows), SIDE * SIDE, dtype=np.int64),
    )
    # 0..16 -> 0..255, halves (there is one, 8 -> 127.5) up
    grey = (values[rows] * 255 * 2 + _WHITE) // (2 * _WHITE)
    pixels = _Pixels(grey.astype(np.uint8).reshape(-1, SIDE, SIDE))
    return ImageSet(
        info=DatasetInfo("digits", native_size=SIDE),
        listing=listing,
        image=pixels.image,
        size=pixels.size,
        mean=(MEAN, MEAN, MEAN),
        std=(STD, STD, STD),
        found=f"{len(names)} classes, {len(rows)} images of 8 x 8 in scikit-learn's digits",
    )


def _source() -> tuple[I64, I64]:
    """(1797, 64) values 0..16 and (1797,) digits, in the order of the source.

    Importing scikit-learn takes about 2 s, reading the table that it keeps 15 ms.
    """
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        table = Path(folder, "datasets", "data", "digits.csv.gz")
        if table.is_file():
            numbers = np.loadtxt(table, delimiter=",", dtype=np.int64)  # (1797, 65), the digit last
            return numbers[:, :-1], numbers[:, -1]
    from sklearn.datasets import load_digits  # it has moved its table: ask it

    bunch = load_digits()
    return bunch.data.astype(np.int64), bunch.target.astype(np.int64)
