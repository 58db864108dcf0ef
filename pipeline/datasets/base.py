"""The contract of every reader: one split of a data set, listed at once and decoded image by image."""

from collections.abc import Callable
from dataclasses import dataclass

from fsnl.cache.arrays import U8
from fsnl.cache.schema import DatasetInfo, Listing

# ImageNet's published channel statistics, for images of no benchmark's own.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class ImageSet:
    """One split of a data set.

    Attributes:
        info: which data set.
        listing: class names, labels, image ids and source sizes, in store order.
        image: row -> (H, W, 3) uint8 RGB, C-contiguous, before any resize; safe to call from several
            threads at once. Raises `DatasetError`, naming the file, where an image cannot be decoded.
        size: row -> (height, width) of that image, by its file's header alone: no pixel is decoded. As
            thread-safe as `image`, and raises the same.
        mean: per channel, in [0, 1], for encoders without a normalisation of their own.
        std: likewise.
        found: one line for the user, what was found where (`20 classes, 12000 images in ROOT/<class>`).
    """

    info: DatasetInfo
    listing: Listing
    image: Callable[[int], U8]
    size: Callable[[int], tuple[int, int]]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    found: str
