"""The images to learn from, known by their pixels alone: no label and no file name decides anything."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import I64
from fsnl.cache.schema import Preprocessing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.encoders.batches import batch_rows, prepared_batches

_BATCH = 256


@dataclass(frozen=True, slots=True)
class TrainingImages:
    """The images of one split in an order that their pixels give.

    Attributes:
        rows: (N,) int64 rows of the image set, by image digest; of equal digests either order is the same.
        sha256: hex digest of the sorted image digests: which images these are, whatever they are called.
    """

    rows: I64
    sha256: str

    def of(self, positions: Sequence[int]) -> list[int]:
        """The rows of the image set for places in this order."""
        rows: list[int] = self.rows[np.asarray(positions, np.int64)].tolist()
        return rows


def identified(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    *,
    workers: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TrainingImages:
    """Decode every image once, to know it by its pixels.

    Rows of an image set come by class and file name; trained in that order, shuffled labels would give
    other weights.

    Raises:
        DatasetError: an image that cannot be decoded.
    """
    n_images = len(image_set.listing.image_ids)
    digests = np.empty(n_images, np.uint64)
    batches = batch_rows(range(n_images), batch_size=_BATCH)
    decoded = prepared_batches(image_set, preprocessing, batches=batches, workers=workers)
    for batch, (_, of_batch) in zip(batches, decoded, strict=True):
        digests[batch.start : batch.stop] = of_batch
        progress(batch.stop, n_images)
    rows = np.argsort(digests, kind="stable").astype(np.int64)
    return TrainingImages(rows, hashlib.sha256(digests[rows].astype("<u8").tobytes()).hexdigest())
