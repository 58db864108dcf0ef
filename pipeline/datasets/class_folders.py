"""A benchmark with a folder for each class: ROOT/<split>/<class>/..., or all splits' classes side by side."""

from pathlib import Path

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.benchmarks import MINIIMAGENET, SPLITS, Asked
from fsnl.pipeline.datasets.folder import in_order, require_images, search_classes, search_remarks
from fsnl.pipeline.datasets.image_set import benchmark_set
from fsnl.pipeline.datasets.names import printable
from fsnl.pipeline.datasets.published_names import by_published_name, check_classes, is_wnid
from fsnl.pipeline.datasets.walk import holds_image, is_file, is_folder, require_utf8, visible


def find_class_folders(place: Path, asked: Asked) -> Path | None:
    """The folder that holds the class folders: PLACE/<split>, PLACE/data, or PLACE itself.

    CIFAR has a class called `train`: a folder of a split's name counts only with class folders in it.
    """
    if not place.is_dir():
        return None
    folders = {entry.name.casefold(): place / entry.name for entry in visible(place) if is_folder(entry)}
    for name in (asked.split, f"{asked.split}_{asked.split}", "data"):
        if name in folders and _holds_classes(folders[name], asked):
            return folders[name]
    return place if _holds_classes(place, asked) else None


def _holds_classes(folder: Path, asked: Asked) -> bool:
    """Whether some subfolder is a class of the split, or, below a folder of its name, any class."""
    benchmark = asked.benchmark
    names = {entry.name.casefold() for entry in visible(folder) if is_folder(entry)}
    if not names.isdisjoint(benchmark.classes[asked.split]):
        return True
    if folder.name.casefold() != asked.split:
        return False
    known = any(benchmark.split_of(name) for name in names)
    return known or (benchmark is MINIIMAGENET and any(is_wnid(name) for name in names))


def read_class_folders(folder: Path, asked: Asked) -> ImageSet:
    """List the classes of the split in a folder that holds class folders.

    Args:
        folder: its subfolders are the classes: of one split where the folder has a split's name.
        asked: data set, split, classes.

    Returns:
        Its images; an image id is `<class>/<path in its folder>`, the class in its published spelling.

    Raises:
        DatasetError: other classes, or not only those of the split; a class without images; a file that
            cannot be read or is empty; fewer than two classes.
    """
    where = printable(folder)
    folders = by_published_name(asked, _names(folder), where=where)
    known = {name: own for name, own in folders.items() if asked.benchmark.split_of(name)}
    strays = {name for name, own in folders.items() if name not in known and holds_image(folder / own)}
    one_split = set(folder.name.casefold().split("_")).issubset(SPLITS)
    names = check_classes({*known, *strays}, asked, where=where, all_splits=not one_split)
    searches = search_classes(
        folder,
        {name: folders[name] for name in names},
        root=folder.parent,
        skip_unreadable=asked.skip_unreadable,
    )
    require_images(searches, where=where)
    listing, files = in_order(folder, asked.split, folders=folders, searches=searches)
    remarks = search_remarks(searches)
    return benchmark_set(
        asked, listing, image=files.image, size=files.size, where=f"{where}/<class>", remarks=remarks
    )


def _names(folder: Path) -> list[str]:
    names = []
    for entry in visible(folder):
        if is_folder(entry):
            require_utf8(entry)
            names.append(entry.name)
        elif entry.is_symlink() and not is_file(entry):
            msg = f"{printable(entry.path)}: a link that leads nowhere or in a circle; remove or mend it"
            raise DatasetError(msg)
    return names
