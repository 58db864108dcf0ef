"""Images below a folder, found without opening any: what counts as one, what is passed over."""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.decode import EXTENSIONS
from fsnl.pipeline.datasets.names import printable

# What systems and tools leave in folders, besides everything whose name starts with a dot.
_CLUTTER = frozenset(
    ("thumbs.db", "desktop.ini", "__macosx", "__pycache__", "@eadir", "$recycle.bin", "lost+found")
)

FolderId = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FoundImage:
    """One image file: its path below the folder that was searched, with `/`, and its bytes."""

    name: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Search:
    """What lies below a folder.

    Attributes:
        images: in no order.
        passed_over: extension in lower case -> number of files that are not images.
        n_loops: links back to a folder above themselves, not followed.
        unreadable: paths of files that could not be looked at, or are empty, where those are skipped.
    """

    images: list[FoundImage]
    passed_over: Counter[str]
    n_loops: int
    unreadable: list[str]


def folder_id(folder: Path | str) -> FolderId:
    """What a folder is on its disk, by whatever link it is reached."""
    try:
        status = Path(folder).stat()
    except OSError as error:
        raise _unreadable(folder, error) from error
    return status.st_dev, status.st_ino


def visible(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Entries of a folder in no order, without hidden ones and clutter."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.name.lower() not in _CLUTTER:
                    yield entry
    except OSError as error:
        raise _unreadable(folder, error) from error


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or a link to one."""
    try:
        return entry.is_dir()
    except OSError:  # links that lead round in a circle
        return False


def is_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a file or a link to one."""
    try:
        return entry.is_file()
    except OSError:
        return False


def is_image(entry: os.DirEntry[str]) -> bool:
    """Whether an entry, no folder, has the extension of an image, in any letter case."""
    return _extension(entry.name) in EXTENSIONS


def holds_image(folder: Path) -> bool:
    """Whether any image lies below a folder; stops at the first."""
    todo = [str(folder)]
    seen: set[FolderId] = set()
    while todo:
        path = todo.pop()
        here = folder_id(path)
        if here in seen:
            continue
        seen.add(here)
        for entry in visible(path):
            if is_folder(entry):
                todo.append(entry.path)
            elif is_image(entry):
                return True
    return False


def search(folder: Path, *, above: tuple[FolderId, ...], skip_unreadable: bool = False) -> Search:
    """Find every image below a folder, in folders of any depth, through links.

    Args:
        folder: where to search.
        above: the folders that it was reached through: a link back to one of them is not followed.
        skip_unreadable: list such files, instead of refusing them.

    Returns:
        The images, and what was passed over.

    Raises:
        DatasetError: a folder or file cannot be read, is an empty file, or has a name that is not UTF-8.
    """
    images: list[FoundImage] = []
    passed_over: Counter[str] = Counter()
    unreadable: list[str] = []
    n_loops = 0
    todo = [(str(folder), "", above)]
    while todo:
        path, prefix, passed = todo.pop()
        here = folder_id(path)
        if here in passed:
            n_loops += 1
            continue
        for entry in visible(path):
            if is_folder(entry):
                require_utf8(entry)
                todo.append((entry.path, f"{prefix}{entry.name}/", (*passed, here)))
                continue
            try:
                n_bytes = file_size(entry) if is_image(entry) else None
            except DatasetError:
                if not skip_unreadable:
                    raise
                unreadable.append(printable(entry.path))
                continue
            if n_bytes is None:
                passed_over[_extension(entry.name)] += 1
            else:
                images.append(FoundImage(prefix + entry.name, n_bytes))
    return Search(images, passed_over, n_loops, unreadable)


def require_utf8(entry: os.DirEntry[str] | Path) -> None:
    """Raise `DatasetError` where a name is not UTF-8: the store keeps names as UTF-8 text."""
    if entry.name.isascii():
        return
    try:
        entry.name.encode()
    except UnicodeEncodeError as error:
        msg = f"{printable(os.fspath(entry))}: a name that is not UTF-8; rename it"
        raise DatasetError(msg) from error


def _extension(name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    return f".{extension.lower()}" if dot and stem else ""


def file_size(entry: os.DirEntry[str] | Path) -> int | None:
    """Bytes of a file that should hold an image; None where it is no file (a pipe, a device)."""
    require_utf8(entry)
    try:
        status = entry.stat()
    except OSError as error:
        raise _unreadable(os.fspath(entry), error) from error
    if not stat.S_ISREG(status.st_mode):
        return None
    if status.st_size == 0:
        msg = f"{printable(os.fspath(entry))}: empty file (0 bytes)"
        raise DatasetError(msg)
    return status.st_size


def _unreadable(path: Path | str, error: OSError) -> DatasetError:
    link = " (a link to nothing)" if isinstance(error, FileNotFoundError) and Path(path).is_symlink() else ""
    return DatasetError(f"{printable(path)}: cannot be read: {error.strerror}{link}")
