"""Data sets by the name that `--dataset` takes."""

from collections.abc import Sequence
from pathlib import Path

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.digits import read_digits
from fsnl.pipeline.datasets.folder import read_folder

DATASETS = ("digits", "folder")


def open_image_set(
    name: str, *, root: Path | None, split: str, class_names: Sequence[str] | None
) -> ImageSet:
    """List one split of a data set; no pixel is read yet.

    Args:
        name: one of `DATASETS`.
        root: where its files are; None for a data set that fsnl brings along.
        split: the split to list.
        class_names: the classes to keep, None for all.

    Returns:
        Its images, in store order.

    Raises:
        DatasetError: an unknown name, a root where there should be none or none where there should be
            one, or whatever the reader of that data set finds wrong.
    """
    if name not in DATASETS:
        msg = f"unknown data set {name!r}; there are {', '.join(DATASETS)}"
        raise DatasetError(msg)
    if name == "digits":
        if root is not None:
            msg = f"digits comes with fsnl and takes no root; for the images in {root} use --dataset folder"
            raise DatasetError(msg)
        return read_digits(split=split, class_names=class_names)
    if root is None:
        msg = f"data set {name!r} needs --root, the folder that holds its images"
        raise DatasetError(msg)
    return read_folder(root, split=split, class_names=class_names)
