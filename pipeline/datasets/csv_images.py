"""Images that a CSV file lists, lying flat in a folder: miniImageNet's `images/`, or anybody's."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fsnl.cache.errors import DatasetError
from fsnl.cache.schema import DatasetInfo, Listing
from fsnl.pipeline.datasets.base import IMAGENET_MEAN, IMAGENET_STD, ImageSet
from fsnl.pipeline.datasets.benchmarks import SPLITS, Asked
from fsnl.pipeline.datasets.csv_list import FoundFile, ListedImage, find_listed, read_csv_list
from fsnl.pipeline.datasets.folder import ImageFiles
from fsnl.pipeline.datasets.image_set import benchmark_set
from fsnl.pipeline.datasets.names import choose_classes, counted, printable, some_of
from fsnl.pipeline.datasets.published_names import by_published_name, check_classes
from fsnl.pipeline.datasets.walk import is_file, visible

# Where lists of the splits are kept beside the images.
_LIST_FOLDERS = ("", "csv", "split", "splits")


def read_folder_csv(
    root: Path,
    csv: Path,
    *,
    split: str,
    class_names: Sequence[str] | None = None,
    skip_unreadable: bool = False,
) -> ImageSet:
    """List the images below ROOT that a CSV file names (see `read_csv_list`).

    Args:
        root: the folder that the listed paths start from.
        csv: the list.
        split: which rows, where the list has a column `split`; else only a name.
        class_names: the classes to keep, None for all.
        skip_unreadable: leave out files that are empty or cannot be looked at, instead of refusing them.

    Returns:
        Its images; an image id is the listed path.

    Raises:
        DatasetError: the list or a file of it cannot be used, a class is missing, fewer than two classes.
    """
    if not root.is_dir():
        msg = f"{printable(root)}: no such folder; the paths in {printable(csv)} start from --root"
        raise DatasetError(msg)
    rows = read_csv_list(csv, split=split)
    available = sorted({row.label for row in rows})
    kept = choose_classes(available, wanted=class_names, where=printable(csv))
    rows = [row for row in rows if row.label in kept]
    found = find_listed(root, rows, where=printable(csv), skip_unreadable=skip_unreadable)
    named = [(row.label, row.file) for row in rows]
    listing, files = _in_order(root, split, rows=named, found=found, where=printable(csv))
    classes, images = f"{len(listing.class_names)} classes", f"{len(listing.image_ids)} images"
    remarks = _skipped(rows, found)
    return ImageSet(
        info=DatasetInfo("folder", native_size=None),
        listing=listing,
        image=files.image,
        size=files.size,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        found="; ".join([f"{classes}, {images} of {printable(csv)} in {printable(root)}", *remarks]),
    )


def find_csv(place: Path, asked: Asked) -> Path | None:
    """PLACE/<split>.csv, or the list beside PLACE where that is its folder of images, or PLACE itself."""
    if place.is_file():
        return place if place.suffix.lower() == ".csv" else None
    if not place.is_dir():
        return None
    parents = [place, place.parent] if place.name.casefold() == "images" else [place]
    for parent in parents:
        for folder in (parent / name for name in _LIST_FOLDERS):
            if not folder.is_dir():
                continue
            files = {e.name.casefold(): folder / e.name for e in visible(folder) if is_file(e)}
            if f"{asked.split}.csv" in files:
                return files[f"{asked.split}.csv"]
    return None


def read_benchmark_csv(csv: Path, asked: Asked) -> ImageSet:
    """List the images of Ravi and Larochelle's `filename,label`, in `images/` near the list.

    Args:
        csv: the list.
        asked: data set, split, classes.

    Returns:
        Its images; an image id is `<class>/<filename>`, as of class folders.

    Raises:
        DatasetError: the list or a file of it cannot be used, it holds other classes, or lies by no images.
    """
    where = printable(csv)
    rows = read_csv_list(csv, split=asked.split)
    spelled = by_published_name(asked, {row.label for row in rows}, where=where)
    published = {own: name for name, own in spelled.items()}
    one_split = csv.stem.casefold() in SPLITS
    kept = check_classes(spelled, asked, where=where, all_splits=not one_split)
    rows = [row for row in rows if published[row.label] in kept]
    folder = _images_folder(csv, rows[0])
    found = find_listed(folder, rows, where=where, skip_unreadable=asked.skip_unreadable)
    named = [(published[row.label], f"{published[row.label]}/{row.file}") for row in rows]
    listing, files = _in_order(folder, asked.split, rows=named, found=found, where=where)
    return benchmark_set(
        asked,
        listing,
        image=files.image,
        size=files.size,
        where=f"{printable(folder)} by {where}",
        remarks=_skipped(rows, found),
    )


def _images_folder(csv: Path, first: ListedImage) -> Path:
    parents = (csv.parent, csv.parent.parent)
    folders = [folder for parent in parents for folder in (parent / "images", parent)]
    for folder in folders:
        path = folder / first.file
        if path.is_file() or path.is_symlink():
            return folder
    for folder in folders:
        if folder.is_dir() and folder.name.casefold() == "images":
            return folder
    looked = ", ".join(printable(folder) for folder in folders)
    msg = f"{printable(csv)}: its images are not beside it: no {first.file!r} in {looked}"
    raise DatasetError(msg)


def _in_order(
    folder: Path, split: str, *, rows: list[tuple[str, str]], found: list[FoundFile | None], where: str
) -> tuple[Listing, ImageFiles]:
    """The listing of (class, image id) rows that were found, and its files."""
    together = sorted(
        (name, image_id, file.name, file.n_bytes)
        for (name, image_id), file in zip(rows, found, strict=True)
        if file is not None
    )
    names = sorted({row[0] for row in together})
    lost = sorted({name for name, _ in rows}.difference(names))
    if lost:
        msg = f"{where}: no readable image in {some_of(lost)}; mend it, or list the classes with --classes"
        raise DatasetError(msg)
    numbers = {name: number for number, name in enumerate(names)}
    listing = Listing(
        split=split,
        class_names=tuple(names),
        labels=np.array([numbers[row[0]] for row in together], dtype=np.int64),
        image_ids=tuple(row[1] for row in together),
        source_sizes=np.array([row[3] for row in together], dtype=np.int64),
    )
    return listing, ImageFiles(folder, tuple(row[2] for row in together))


def _skipped(rows: list[ListedImage], found: list[FoundFile | None]) -> list[str]:
    names = [row.file for row, file in zip(rows, found, strict=True) if file is None]
    return [f"skipped {counted(len(names), 'unreadable file')} ({some_of(names)})"] if names else []
