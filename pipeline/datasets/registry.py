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
from fsnl.pipeline.datasets.locate import lies_at, read_layout
from fsnl.pipeline.datasets.miniimagenet import MINIIMAGENET_LAYOUTS
from fsnl.pipeline.datasets.readable import only_readable

# Layouts of each benchmark, the preferred first.
_LAYOUTS = {"miniimagenet": MINIIMAGENET_LAYOUTS, "cifar-fs": CIFAR_FS_LAYOUTS, "fc100": FC100_LAYOUTS}

DATASETS = ("digits", "folder", *_LAYOUTS)
DOWNLOADABLE = ("cifar-fs", "fc100")


def open_image_set(
    name: str,
    *,
    root: Path | None,
    split: str,
    class_names: Sequence[str] | None,
    csv: Path | None = None,
    skip_unreadable: bool = False,
    downloads: Path | None = None,
) -> ImageSet:
    """List one split of a data set; no pixel of a file is read yet, but where unreadable files are skipped.

    Args:
        name: one of `DATASETS`.
        root: where its files are; None for a data set that fsnl brings along.
        split: the split to list.
        class_names: the classes to keep, None for all.
        csv: of `folder`, a list of its images.
        skip_unreadable: leave out images that cannot be decoded: each is decoded once to know.
        downloads: the root where none is given, for a data set that can be downloaded.

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
    root = _root(name, root=root, csv=csv, downloads=downloads)
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


def lies_there(name: str, root: Path, split: str) -> bool:
    """Whether a benchmark's split lies at a root in one of its layouts, as far as names tell."""
    BENCHMARKS[name].require_split(split)
    return lies_at(_LAYOUTS[name], root, Asked(BENCHMARKS[name], split, wanted=None))


def _root(name: str, *, root: Path | None, csv: Path | None, downloads: Path | None) -> Path:
    """Where the files are: as given, else beside the list of them, else where downloads go."""
    if root is not None:
        return root
    if csv is not None:
        return csv.parent
    if name in DOWNLOADABLE and downloads is not None and downloads.is_dir():
        return downloads
    more = ", or --download" if name in DOWNLOADABLE else ""
    msg = f"data set {name!r} needs --root, the folder that holds its images{more}"
    raise DatasetError(msg)
