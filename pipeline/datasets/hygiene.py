"""What is odd about the images of a split: exact duplicates, and images with nothing on them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fsnl.cache.arrays import U8, U64
from fsnl.cache.fingerprint import equal_digests
from fsnl.cache.schema import Listing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.names import counted

# An image is near-constant where no channel spans more than this, of 255: noise of a camera or of JPEG.
NEARLY = 8

# Looked at first: nearly every image differs already there.
_STRIDE = 8
_N_NAMED = 3


def is_near_constant(image: U8) -> bool:
    """Whether each channel of an image has about one value everywhere.

    Args:
        image: (H, W, 3) uint8.

    >>> is_near_constant(np.full((4, 4, 3), (250, 0, 9), dtype=np.uint8))
    True
    """
    height, width = image.shape[:2]
    corner, middle = image[0, 0].tolist(), image[height // 2, width // 2].tolist()
    if any(abs(one - other) > NEARLY for one, other in zip(corner, middle, strict=True)):
        return False  # two pixels tell for most images, at a tenth of the cost
    return _span(image[::_STRIDE, ::_STRIDE]) <= NEARLY and _span(image) <= NEARLY


def _span(image: U8) -> int:
    """The most that a channel spans."""
    highest = image.max(axis=0).max(axis=0).astype(np.int64)  # (3,)
    return int((highest - image.min(axis=0).min(axis=0)).max())


@dataclass(frozen=True, slots=True)
class _Watched:
    decode: Callable[[int], U8]
    constant: list[int]

    def image(self, row: int) -> U8:
        image = self.decode(row)
        if is_near_constant(image):
            self.constant.append(row)
        return image


def watch(images: ImageSet) -> tuple[ImageSet, list[int]]:
    """The same images, and a list of rows to which each near-constant one is added as it is decoded."""
    watched = _Watched(images.image, [])
    return replace(images, image=watched.image), watched.constant


def hygiene_notes(listing: Listing, *, digests: U64, constant: list[int]) -> list[str]:
    """Lines for the user about a split; none where nothing is odd.

    Args:
        listing: of the split.
        digests: (N,) of its images.
        constant: rows of near-constant images, in any order.
    """
    notes = []
    groups = equal_digests(digests)
    if groups:
        across = [group for group in groups if len(np.unique(listing.labels[group])) > 1]
        n_images = sum(len(group) for group in groups)
        shown = "; ".join(_names(listing, group.tolist(), joint=" = ") for group in groups[:_N_NAMED])
        text = f"{n_images} images in {counted(len(groups), 'group')} of pixel-identical ones"
        more = f", {len(across)} of them across classes" if across else ""
        notes.append(f"note: {text}{more}: {shown}{'; ...' if len(groups) > _N_NAMED else ''}")
    if constant:
        rows = sorted(set(constant))
        names = _names(listing, rows[:_N_NAMED], joint=", ")
        more = ", ..." if len(rows) > _N_NAMED else ""
        notes.append(f"note: {counted(len(rows), 'image')} of about one colour: {names}{more}")
    return notes


def _names(listing: Listing, rows: list[int], *, joint: str) -> str:
    """Image ids, with the class where the id does not tell it."""
    names = []
    for row in rows:
        image_id, name = listing.image_ids[row], listing.class_names[listing.labels[row]]
        told = image_id.startswith(f"{name}/")
        names.append(image_id if told else f"{image_id} ({name})")
    return joint.join(names)
