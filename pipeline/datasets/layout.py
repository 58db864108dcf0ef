"""Where the class folders of one split lie: in ROOT/<split>, or in ROOT itself."""

import stat
from dataclasses import dataclass
from pathlib import Path

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.names import one_spelling, printable, some_of
from fsnl.pipeline.datasets.walk import holds_image, is_folder, is_image, visible

# Names that splits go by. A folder of another name beside them says that they are classes.
SPLIT_NAMES = frozenset(
    ("train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval", "base", "novel")
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The folder that holds the class folders, and a remark for the user, or no text."""

    folder: Path
    remark: str


def find_layout(root: Path, split: str) -> Layout:
    """Tell ROOT/<split>/<class>/... from ROOT/<class>/...

    The first it is where ROOT holds a folder of the split's name, no image lies directly in that, and
    every other folder in ROOT that holds images has the name of a split too. (CIFAR-100 has a class
    called `train`.) Otherwise the folders in ROOT are classes, and the split's name is only a name.

    Args:
        root: the folder that the user named.
        split: the split asked for.

    Returns:
        The folder of the class folders.

    Raises:
        DatasetError: ROOT is no folder, cannot be read, or holds other splits than this one.
    """
    _require_folder(root)
    split = one_spelling(split)
    names = {one_spelling(entry.name): entry.name for entry in visible(root) if is_folder(entry)}
    splits = sorted(name for name in names if _is_split(name, split) and _has_no_image(root / names[name]))
    if not splits:
        return Layout(root, "")
    classes = sorted(name for name in names if name not in splits and holds_image(root / names[name]))
    if classes:
        remark = f"{some_of(splits)} taken as a class, beside {some_of(classes)}" if split in splits else ""
        return Layout(root, remark)
    if split not in splits:
        msg = f"{printable(root)}: no split {split!r}; there are {some_of(splits)}"
        raise DatasetError(msg)
    return Layout(root / names[split], "")


def find_images(root: Path, split: str) -> Path:
    """The folder whose images, at whatever depth, are those of one split: ROOT/<split>, or ROOT itself.

    The first it is where ROOT holds a folder with the name of a split, the other where it holds none. Where
    such a folder lies beside others that hold images, it may be a split or a class: neither is guessed, for
    images of a test split would be taken with the others.

    Raises:
        DatasetError: ROOT is no folder, cannot be read, holds other splits than this one, or splits beside
            other folders of images.
    """
    _require_folder(root)
    split = one_spelling(split)
    names = {one_spelling(entry.name): entry.name for entry in visible(root) if is_folder(entry)}
    splits = sorted(name for name in names if _is_split(name, split) and holds_image(root / names[name]))
    if not splits:
        return root
    others = sorted(name for name in names if name not in splits and holds_image(root / names[name]))
    if others:
        msg = (
            f"{printable(root)}: {some_of(splits)} may be a split, or a class as {some_of(others)}; move "
            "what does not belong elsewhere, or name the folder of the images alone"
        )
        raise DatasetError(msg)
    if split not in splits:
        msg = f"{printable(root)}: no split {split!r}; there are {some_of(splits)}"
        raise DatasetError(msg)
    return root / names[split]


def _require_folder(root: Path) -> None:
    try:
        mode = root.stat().st_mode
    except FileNotFoundError as error:
        msg = f"{printable(root)}: no such folder"
        raise DatasetError(msg) from error
    except OSError as error:
        msg = f"{printable(root)}: cannot be read: {error.strerror}"
        raise DatasetError(msg) from error
    if not stat.S_ISDIR(mode):
        msg = f"{printable(root)}: a file, not a folder; an archive must be unpacked first"
        raise DatasetError(msg)


def _is_split(name: str, split: str) -> bool:
    return name == split or name.lower() in SPLIT_NAMES


def _has_no_image(folder: Path) -> bool:
    """Whether no image lies directly in a folder: it holds class folders, if anything."""
    return not any(is_image(entry) for entry in visible(folder) if not is_folder(entry))
