"""Anybody's images without classes: every image below a folder, whatever folders it lies in."""

from pathlib import Path

import numpy as np

from fsnl.cache.errors import DatasetError
from fsnl.cache.schema import DatasetInfo, Listing
from fsnl.pipeline.datasets.base import IMAGENET_MEAN, IMAGENET_STD, ImageSet
from fsnl.pipeline.datasets.folder import ImageFiles, search_remarks
from fsnl.pipeline.datasets.layout import find_images
from fsnl.pipeline.datasets.names import one_spelling, printable
from fsnl.pipeline.datasets.walk import folder_id, search


def read_unlabelled(root: Path, *, split: str) -> ImageSet:
    """List all images below ROOT/<split>, or below ROOT (see `find_images`).

    Args:
        root: a folder.
        split: the split to list; only a name where ROOT holds no splits.

    Returns:
        Its images, ordered by image id, as one class, `images`; an id is the path below the folder.

    Raises:
        DatasetError: no such folder or split, no image, a file that is unreadable or empty, or has a name
            that is not UTF-8.
    """
    folder = find_images(root, split)
    found = search(folder, above=() if folder == root else (folder_id(root),))
    if not found.images:
        msg = f"{printable(folder)}: no image below it; name the folder that holds the images"
        raise DatasetError(msg)
    files = sorted((one_spelling(image.name), image.name, image.n_bytes) for image in found.images)
    listing = Listing(
        split=split,
        class_names=("images",),
        labels=np.zeros(len(files), dtype=np.int64),
        image_ids=tuple(image_id for image_id, _, _ in files),
        source_sizes=np.array([n_bytes for _, _, n_bytes in files], dtype=np.int64),
    )
    images = ImageFiles(folder, tuple(name for _, name, _ in files))
    remarks = search_remarks({"images": found})
    return ImageSet(
        info=DatasetInfo("folder", native_size=None),
        listing=listing,
        image=images.image,
        size=images.size,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        found="; ".join([f"{len(files)} images below {printable(folder)}", *remarks]),
    )
