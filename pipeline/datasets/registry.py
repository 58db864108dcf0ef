"""Data sets by the name that `--dataset` takes."""

from collections.abc import Sequence
from pathlib import Path

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.benchmarks import BENCHMARKS, Asked
from fsnl.pipeline.datasets.cifar import CIFAR_FS_LAYOUTS, FC100_LAYOUTS
from fsnl.pipeline.datasets.csv_images import read_folder_csv
from fsnl.pipeline.datasets.digits import read_digits
from fsnl.pipeline.datasets.folder import read_folder
from fsnl.pipeline.datasets.locate import read_layout
from fsnl.pipeline.datasets.miniimagenet import MINIIMAGENET_LAYOUTS
from fsnl.pipeline.datasets.readable import only_readable

_LAYOUTS = {"miniimagenet": MINIIMAGENET_LAYOUTS, "cifar-fs": CIFAR_FS_LAYOUTS, "fc100": FC100_LAYOUTS}

DATASETS = ("digits", "folder", *_LAYOUTS)


def open_image_set(
    name: str,
    *,
    root: Path | None,
    split: str,
    class_names: Sequence[str] | None,
    csv: Path | None = None,
    skip_unreadable: bool = False,
) -> ImageSet:
    """List one split of a data set; no pixel of a file is read yet, but where unreadable files are skipped.

    Args:
        name: one of `DATASETS`.
        root: where its files are; None for a data set that fsnl brings along.
        split: the split to list.
        class_names: the classes to keep, None for all.
        csv: of `folder`, a list of its images.
        skip_unreadable: leave out images that cannot be decoded: each is decoded once to know.

    Returns:
        Its images, in store order.

    Raises:
        DatasetError: an unknown name, a root where there should be none or none where there should be
            one, or whatever the reader of that data set finds wrong.
    """
    if name not in DATASETS:
        msg = f"unknown data set {name!r}; there are {', '.join(DATASETS)}"
        raise DatasetError(msg)
    if csv is not None and name != "folder":
        msg = f"a CSV list is for --dataset folder; {name} finds its own lists below --root"
        raise DatasetError(msg)
    if name == "digits":
        if root is not None:
            msg = f"digits comes with fsnl and takes no root; for the images in {root} use --dataset folder"
            raise DatasetError(msg)
        return read_digits(split=split, class_names=class_names)
    if root is None and csv is not None:
        root = csv.parent
    if root is None:
        msg = f"data set {name!r} needs --root, the folder that holds its images"
        raise DatasetError(msg)
    if csv is not None:
        images = read_folder_csv(
            root, csv, split=split, class_names=class_names, skip_unreadable=skip_unreadable
        )
    elif name == "folder":
        images = read_folder(root, split=split, class_names=class_names, skip_unreadable=skip_unreadable)
    else:
        benchmark = BENCHMARKS[name]
        benchmark.require_split(split)
        wanted = None if class_names is None else tuple(class_names)
        asked = Asked(benchmark, split, wanted, skip_unreadable=skip_unreadable)
        images = read_layout(_LAYOUTS[name], root, asked)
    return only_readable(images) if skip_unreadable else images
