"""Anybody's images: a folder for each class, and perhaps a folder around them for each split."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsnl.cache.arrays import U8
from fsnl.cache.errors import DatasetError
from fsnl.cache.schema import DatasetInfo, Listing
from fsnl.pipeline.datasets.base import IMAGENET_MEAN, IMAGENET_STD, ImageSet
from fsnl.pipeline.datasets.decode import decode, header_size
from fsnl.pipeline.datasets.layout import SPLIT_NAMES, Layout, find_layout
from fsnl.pipeline.datasets.names import choose_classes, counted, one_spelling, printable, some_of
from fsnl.pipeline.datasets.walk import (
    Search,
    folder_id,
    is_folder,
    is_image,
    require_utf8,
    search,
    visible,
)


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Image files by row: their names on the disk below one folder."""

    folder: Path
    names: tuple[str, ...]

    def image(self, row: int) -> U8:
        return decode(self._path(row))

    def size(self, row: int) -> tuple[int, int]:
        return header_size(self._path(row))

    def _path(self, row: int) -> str:
        """As text: a `Path` takes a tenth of the time of decoding a small image."""
        return f"{self.folder}/{self.names[row]}"


def read_folder(
    root: Path, *, split: str, class_names: Sequence[str] | None = None, skip_unreadable: bool = False
) -> ImageSet:
    """List the images of ROOT/<split>/<class>/... or ROOT/<class>/... (see `find_layout`).

    Folders inside a class belong to the class. Links are followed. Passed over, and counted in `found`
    unless they are hidden: files without the extension of an image, folders without images, images that
    lie beside the class folders, links back to a folder above themselves. Class names and image ids are
    in Unicode's composed form (NFC), and ordered by code point.

    Args:
        root: a folder.
        split: the split to list; only a name where ROOT holds the classes themselves.
        class_names: the classes to keep, None for all that hold images.
        skip_unreadable: pass over files that are empty or cannot be looked at, instead of refusing them.

    Returns:
        Its images; an image id is the path below the folder that holds the class folders.

    Raises:
        DatasetError: no such folder, a split, class or file that is missing, unreadable or empty, fewer
            than two classes, a name that is not UTF-8, or two names that differ only in Unicode's form.
    """
    layout = find_layout(root, split)
    folders, n_stray = _class_folders(layout.folder)
    kept = sorted(folders)
    if class_names is not None:
        kept = list(choose_classes(kept, wanted=class_names, where=printable(layout.folder)))
    searches = search_classes(
        layout.folder, {name: folders[name] for name in kept}, root=root, skip_unreadable=skip_unreadable
    )
    if class_names is not None:
        require_images(searches, where=printable(layout.folder))
    searches_with_images = {name: found for name, found in searches.items() if found.images}
    _require_classes(tuple(searches_with_images), n_stray=n_stray, where=printable(layout.folder))
    listing, files = in_order(layout.folder, split, folders=folders, searches=searches_with_images)
    return ImageSet(
        info=DatasetInfo("folder", native_size=None),
        listing=listing,
        image=files.image,
        size=files.size,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        found=_describe(layout, listing, searches=searches, n_stray=n_stray),
    )


def _class_folders(folder: Path) -> tuple[dict[str, str], int]:
    """Class name -> name on the disk, and the number of images that lie beside the class folders."""
    folders: dict[str, str] = {}
    n_stray = 0
    for entry in visible(folder):
        if is_folder(entry):
            require_utf8(entry)
            name = one_spelling(entry.name)
            if name in folders:
                msg = f"{printable(folder)}: two folders {name!r}, alike but for Unicode's form; rename one"
                raise DatasetError(msg)
            folders[name] = entry.name
        elif is_image(entry):
            n_stray += 1
    return folders, n_stray


def search_classes(
    folder: Path, folders: dict[str, str], *, root: Path, skip_unreadable: bool = False
) -> dict[str, Search]:
    """Class name -> what its folder holds, in the order of the classes.

    Args:
        folder: what holds the class folders.
        folders: class name -> name on the disk.
        root: a folder at or above `folder`; links back to either are not followed.
        skip_unreadable: as of `read_folder`.

    Raises:
        DatasetError: a folder or file cannot be read, or a file is empty.
    """
    above = (folder_id(root), folder_id(folder))
    return {
        name: search(folder / folders[name], above=above, skip_unreadable=skip_unreadable)
        for name in sorted(folders)
    }


def require_images(searches: dict[str, Search], *, where: str) -> None:
    """Raise `DatasetError` where a class has no image."""
    empty = [name for name, found in searches.items() if not found.images]
    if empty:
        msg = f"{where}: no image in {some_of(empty)}; add images, or leave it out of the classes"
        raise DatasetError(msg)


def _require_classes(names: tuple[str, ...], *, n_stray: int, where: str) -> None:
    if not names:
        stray = f"{counted(n_stray, 'image')} but no class; give each class a folder"
        fault = stray if n_stray else "no image"
        msg = f"{where}: {fault}: needed are <class>/<image>, or <split>/<class>/<image>"
        raise DatasetError(msg)
    if all(name.lower() in SPLIT_NAMES for name in names):
        msg = f"{where}: {some_of(names)} should hold a folder for each class, and hold images"
        raise DatasetError(msg)
    choose_classes(names, wanted=None, where=where)


def in_order(
    folder: Path, split: str, *, folders: dict[str, str], searches: dict[str, Search]
) -> tuple[Listing, ImageFiles]:
    """The listing of classes that all hold images, and its files in the same order.

    Args:
        folder: what holds the class folders.
        split: its name.
        folders: class name -> name on the disk.
        searches: class name -> what is in it, sorted.

    Raises:
        DatasetError: two names that differ only in Unicode's form.
    """
    rows: list[tuple[str, str, int]] = []  # image id, name on the disk, bytes
    for name, found in searches.items():
        of_class = []
        for image in found.images:
            file = f"{folders[name]}/{image.name}"
            of_class.append((f"{name}/{one_spelling(image.name)}", file, image.n_bytes))
        of_class.sort()
        rows.extend(of_class)
    ids = tuple(row[0] for row in rows)
    for i in range(1, len(ids)):
        if ids[i] == ids[i - 1]:
            msg = f"{printable(folder)}: two images {ids[i]!r}, alike but for Unicode's form; rename one"
            raise DatasetError(msg)
    counts = [len(found.images) for found in searches.values()]
    listing = Listing(
        split=split,
        class_names=tuple(searches),
        labels=np.repeat(np.arange(len(counts), dtype=np.int64), counts),
        image_ids=ids,
        source_sizes=np.array([row[2] for row in rows], dtype=np.int64),
    )
    return listing, ImageFiles(folder, tuple(row[1] for row in rows))


def _describe(layout: Layout, listing: Listing, *, searches: dict[str, Search], n_stray: int) -> str:
    """One line: how many classes and images where, and what was passed over."""
    remarks = [layout.remark] if layout.remark else []
    remarks += search_remarks(searches)
    if n_stray:
        remarks.append(f"passed over {counted(n_stray, 'image')} beside the class folders")
    classes, images = f"{len(listing.class_names)} classes", f"{len(listing.image_ids)} images"
    return "; ".join([f"{classes}, {images} in {printable(layout.folder)}/<class>", *remarks])


def search_remarks(searches: dict[str, Search]) -> list[str]:
    """What was passed over in class folders, for the user to know."""
    passed_over: Counter[str] = Counter()
    for found in searches.values():
        passed_over.update(found.passed_over)
    empty = [name for name, found in searches.items() if not found.images]
    unreadable = [name for found in searches.values() for name in found.unreadable]
    n_loops = sum(found.n_loops for found in searches.values())
    remarks = []
    if passed_over:
        kinds = ", ".join(sorted(printable(kind) for kind in passed_over if kind)) or "without extension"
        remarks.append(
            f"passed over {counted(passed_over.total(), 'file')} without an image's extension ({kinds})"
        )
    if empty:
        remarks.append(f"passed over {counted(len(empty), 'folder')} without images ({some_of(empty)})")
    if n_loops:
        remarks.append(f"passed over {counted(n_loops, 'link')} back to a folder above")
    if unreadable:
        files = counted(len(unreadable), "unreadable file")
        remarks.append(f"skipped {files} ({some_of(sorted(unreadable))})")
    return remarks
