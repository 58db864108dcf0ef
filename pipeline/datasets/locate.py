"""Which layout of a benchmark lies at a path, and what to say where none does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.benchmarks import SPLITS, Asked
from fsnl.pipeline.datasets.guess import kind_of_file
from fsnl.pipeline.datasets.names import printable, some_of
from fsnl.pipeline.datasets.walk import is_folder, visible

# How far below the root a copy is looked for, to name it in the message that none is at the root.
_DEEPEST = 3
_MOST_FOLDERS = 500


@dataclass(frozen=True, slots=True)
class BenchmarkLayout:
    """One form in which a benchmark is passed around.

    Attributes:
        name: for the user, `class folders`.
        wanted: what it looks like, with `{split}` for the split.
        find: a folder or file -> the file or folder to read, or None. It looks at names only.
        read: what `find` gave -> the images.
    """

    name: str
    wanted: str
    find: Callable[[Path, Asked], Path | None]
    read: Callable[[Path, Asked], ImageSet]


def read_layout(layouts: Sequence[BenchmarkLayout], root: Path, asked: Asked) -> ImageSet:
    """Read the first layout that lies at the root, or else in a folder of the root.

    Args:
        layouts: those to look for, the preferred first.
        root: the folder that holds them, one above it, or the very file.
        asked: data set, split, classes.

    Raises:
        DatasetError: none lies there, or what lies there is spoiled.
    """
    _require_there(root)
    for place in _places(root):
        hits = _found(layouts, place, asked, tolerant=place != root)
        if not hits:
            continue
        layout, path = hits[0]
        images = layout.read(path, asked)
        others = sorted({printable(other) for _, other in hits[1:] if other != path})
        if not others:
            return images
        return replace(images, found=f"{images.found}; not read: {', '.join(others)}")
    raise DatasetError(_nothing_there(layouts, root, asked))


def lies_at(layouts: Sequence[BenchmarkLayout], root: Path, asked: Asked) -> bool:
    """Whether `read_layout` would find one of the layouts."""
    places = _places(root) if root.exists() else ()
    return any(_found(layouts, place, asked, tolerant=place != root) for place in places)


def _found(
    layouts: Sequence[BenchmarkLayout], place: Path, asked: Asked, *, tolerant: bool = True
) -> list[tuple[BenchmarkLayout, Path]]:
    """Layouts at a place, with what to read; none where it cannot be looked into and that is tolerated."""
    try:
        found = [(layout, layout.find(place, asked)) for layout in layouts]
    except DatasetError:
        if not tolerant:
            raise
        return []
    return [(layout, path) for layout, path in found if path is not None]


def _require_there(root: Path) -> None:
    try:
        root.stat()
    except FileNotFoundError as error:
        msg = f"{printable(root)}: no such file or folder"
        raise DatasetError(msg) from error
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"{printable(root)}: cannot be read: {reason}"
        raise DatasetError(msg) from error


def _places(root: Path) -> Iterator[Path]:
    """The root, then the folders in it by name."""
    yield root
    if root.is_dir():
        yield from _folders(root)


def _folders(folder: Path) -> list[Path]:
    return sorted(folder / entry.name for entry in visible(folder) if is_folder(entry))


def _nothing_there(layouts: Sequence[BenchmarkLayout], root: Path, asked: Asked) -> str:
    looked_for = ", ".join(layout.wanted.format(split=asked.split) for layout in layouts)
    title = f"{asked.benchmark.title} {asked.split}"
    guess = _guess_file(root) if not root.is_dir() else _guess_folder(layouts, root, asked)
    return f"{printable(root)}: no {title} here; looked for {looked_for}; {guess}"


def _guess_file(root: Path) -> str:
    kind = kind_of_file(root)
    return f"this is {kind}" if kind else "this file is none of them; give --root the folder that holds one"


def _guess_folder(layouts: Sequence[BenchmarkLayout], root: Path, asked: Asked) -> str:
    for split in SPLITS:
        other = replace(asked, split=split, wanted=None)
        for place in _places(root):
            if split != asked.split and (found := _found(layouts, place, other)):
                where = printable(found[0][1])
                return f"found {split} in {where}; ask for --split {split}, or get the rest"
    for place in _deeper(root):
        if _found(layouts, place, asked):
            return f"it lies deeper: give --root {printable(place)}"
    for above in list(root.absolute().parents)[:2]:
        if _found(layouts, above, asked):
            return f"it lies above: give --root {printable(above)}"
    entries = sorted(entry.name for entry in visible(root))
    if not entries:
        return "the folder is empty"
    for name in entries:
        kind = kind_of_file(root / name) if (root / name).is_file() else None
        if kind and ("unpack" in kind or "download" in kind):
            return f"found {printable(name)}, which is {kind}"
    return f"found {some_of(map(printable, entries))}"


def _deeper(root: Path) -> Iterator[Path]:
    """Folders two and more levels below the root, nearest first, not too many."""
    level = _folders(root)
    n_seen = 0
    for _ in range(_DEEPEST - 1):
        below: list[Path] = []
        for folder in level:
            try:
                below += _folders(folder)
            except DatasetError:
                continue
            n_seen += 1
            if n_seen > _MOST_FOLDERS:
                return
        yield from below
        level = below
