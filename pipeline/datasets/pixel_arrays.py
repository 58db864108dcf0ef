"""Images that lie in one array in memory, listed in store order and handed out row by row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import I64, U8
from fsnl.cache.schema import Listing


@dataclass(frozen=True, slots=True)
class PixelArray:
    """(M, H, W, 3) uint8 images, of which `rows` are listed, in that order."""

    pixels: U8
    rows: I64

    def image(self, row: int) -> U8:
        """A view, not a copy, where the array is in C order."""
        return np.ascontiguousarray(self.pixels[self.rows[row]])

    def size(self, row: int) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[2]


def list_array(
    pixels: U8,
    labels: I64,
    names: Sequence[str],
    *,
    kept: Sequence[str],
    split: str,
    image_ids: Sequence[str] | None = None,
) -> tuple[Listing, PixelArray]:
    """Images of some classes, in store order.

    Args:
        pixels: (M, H, W, 3) uint8. Where only some are kept, those are copied, and the rest can be freed.
        labels: (M,) int64, places in `names`.
        names: the class names of the array.
        kept: those to list, sorted.
        split: its name.
        image_ids: M names, unique within a class; None for the places in the array, `00041`.

    Returns:
        The listing, and its images in that order.
    """
    number = {name: place for place, name in enumerate(kept)}
    renumbered = np.array([number.get(name, -1) for name in names], dtype=np.int64)[labels]
    rows = np.flatnonzero(renumbered >= 0)
    width = max(5, len(str(len(pixels))))
    ids = [f"{row:0{width}d}" if image_ids is None else image_ids[row] for row in rows.tolist()]
    order = sorted(range(len(rows)), key=list(zip(renumbered[rows].tolist(), ids, strict=True)).__getitem__)
    rows = rows[order]
    listing = Listing(
        split=split,
        class_names=tuple(kept),
        labels=renumbered[rows],
        image_ids=tuple(ids[place] for place in order),
        source_sizes=np.full(len(rows), pixels.shape[1] * pixels.shape[2], dtype=np.int64),
    )
    if len(rows) < len(pixels):
        return listing, PixelArray(pixels[rows], np.arange(len(rows), dtype=np.int64))
    return listing, PixelArray(pixels, rows)
