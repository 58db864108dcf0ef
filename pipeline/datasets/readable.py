"""Leaving out images that cannot be decoded, before anything is listed for the store."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from fsnl.cache.arrays import I64, U8
from fsnl.cache.errors import DatasetError
from fsnl.cache.schema import Listing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.names import counted, some_of

_WORKERS = 4


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of an image set."""

    rows: I64
    whole_image: Callable[[int], U8]
    whole_size: Callable[[int], tuple[int, int]]

    def image(self, row: int) -> U8:
        return self.whole_image(int(self.rows[row]))

    def size(self, row: int) -> tuple[int, int]:
        return self.whole_size(int(self.rows[row]))


def only_readable(images: ImageSet) -> ImageSet:
    """The images that can be decoded; each is decoded once to know.

    What is left out is not in the listing, so that the digests of labels and episodes speak of the images
    that are there: a store made without a bad file is not taken for one made with it.

    Raises:
        DatasetError: no image of some class can be decoded.
    """

    def readable(row: int) -> bool:
        try:
            images.image(row)
        except DatasetError:
            return False
        return True

    listing = images.listing
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="fsnl-check") as pool:
        good = np.fromiter(pool.map(readable, range(len(listing.image_ids)), chunksize=64), dtype=bool)
    if good.all():
        return images
    lost = sorted(set(listing.labels.tolist()).difference(listing.labels[good].tolist()))
    if lost:
        names = some_of(listing.class_names[label] for label in lost)
        msg = f"no image of {names} can be decoded; mend them, or list the other classes with --classes"
        raise DatasetError(msg)
    rows = np.flatnonzero(good)
    left_out = [listing.image_ids[row] for row in np.flatnonzero(~good)]
    kept = Listing(
        split=listing.split,
        class_names=listing.class_names,
        labels=listing.labels[rows],
        image_ids=tuple(listing.image_ids[row] for row in rows),
        source_sizes=listing.source_sizes[rows],
    )
    part = _Rows(rows, images.image, images.size)
    skipped = f"skipped {counted(len(left_out), 'image')} that cannot be decoded ({some_of(left_out)})"
    return replace(images, listing=kept, image=part.image, size=part.size, found=f"{images.found}; {skipped}")
