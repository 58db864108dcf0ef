"""A CSV file that lists images: `filename,label`, and perhaps `split`; Ravi and Larochelle's form."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.class_file import delimiter_of, read_text
from fsnl.pipeline.datasets.decode import EXTENSIONS
from fsnl.pipeline.datasets.names import counted, one_spelling, printable, some_of
from fsnl.pipeline.datasets.walk import file_size, visible

_FILE_HEADINGS = ("filename", "file", "image", "path")
_LABEL_HEADINGS = ("label", "class", "class_name", "wnid")
_SPLIT_HEADINGS = ("split", "set", "subset")


@dataclass(frozen=True, slots=True)
class ListedImage:
    """One row: a file below some folder, its class, and where the list says so."""

    file: str
    label: str
    line: int


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A listed file on the disk: its name below the folder, in the disk's letter case, and its bytes."""

    name: str
    n_bytes: int


def read_csv_list(path: Path, *, split: str) -> list[ListedImage]:
    """Rows of one split, in the order of the file; all of them where it has no column of splits.

    UTF-8 with or without a byte order mark, any line ends; comma, semicolon or tab. A heading names the
    columns, in any order and letter case; without one, the first column holds files, the second labels.

    Raises:
        DatasetError: unreadable, no such columns, a field missing or empty, a file listed twice, a path
            that leads out of the folder, no row of the split.
    """
    text = read_text(path)
    where = printable(path)
    try:
        delimiter = delimiter_of(text, path.suffix.lower())
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        rows = [(reader.line_num, [field.strip() for field in row]) for row in reader if any(row)]
    except csv.Error as error:
        msg = f"{where}: not a CSV file: {error}"
        raise DatasetError(msg) from error
    if not rows:
        msg = f"{where}: no row in it; needed are filename,label"
        raise DatasetError(msg)
    columns, body = _columns(rows, where=where)
    images, splits = [], []
    for line, row in body:
        if len(row) <= max(columns.values()) or not all(row[column] for column in columns.values()):
            msg = f"{where}: line {line} has no {' and '.join(columns)}: {','.join(row)!r}"
            raise DatasetError(msg)
        splits.append(row[columns["split"]] if "split" in columns else split)
        file = _inside(row[columns["filename"]], where=where, line=line)
        images.append(ListedImage(file, one_spelling(row[columns["label"]]), line))
    chosen = [image for image, own in zip(images, splits, strict=True) if own.casefold() == split.casefold()]
    if not chosen:
        msg = f"{where}: no row of split {split!r}; there are {some_of(sorted(set(splits)))}"
        raise DatasetError(msg)
    _refuse_twice(chosen, where=where)
    return chosen


def _columns(
    rows: list[tuple[int, list[str]]], *, where: str
) -> tuple[dict[str, int], list[tuple[int, list[str]]]]:
    """Meaning -> column, and the rows below the heading."""
    first = rows[0][1]
    headings = [heading.casefold() for heading in first]
    columns = {}
    kinds = {"filename": _FILE_HEADINGS, "label": _LABEL_HEADINGS, "split": _SPLIT_HEADINGS}
    for meaning, known in kinds.items():
        places = [headings.index(name) for name in known if name in headings]
        if places:
            columns[meaning] = places[0]
    if "filename" in columns and "label" in columns:
        return columns, rows[1:]
    if not columns and len(first) == 2 and PurePosixPath(first[0]).suffix.lower() in EXTENSIONS:
        return {"filename": 0, "label": 1}, rows
    msg = f"{where}: needed are the columns filename and label, and perhaps split; the first row is"
    msg += f" {some_of(first)}"
    raise DatasetError(msg)


def _inside(file: str, *, where: str, line: int) -> str:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or not path.name:
        msg = f"{where}: line {line} names {file!r}; needed is a path below the folder of the images"
        raise DatasetError(msg)
    return str(path)


def _refuse_twice(images: list[ListedImage], *, where: str) -> None:
    seen: dict[str, ListedImage] = {}
    for image in images:
        first = seen.setdefault(image.file, image)
        if first is image:
            continue
        also = "" if first.label == image.label else f", as {first.label!r} and as {image.label!r}"
        msg = f"{where}: {image.file!r} is listed twice, in lines {first.line} and {image.line}{also}"
        msg += "; take one out"
        raise DatasetError(msg)


def find_listed(
    folder: Path, images: list[ListedImage], *, where: str, skip_unreadable: bool
) -> list[FoundFile | None]:
    """The listed files on the disk, in the same order; names may differ from it in letter case.

    Args:
        folder: what the listed paths start from.
        images: rows of the list.
        where: the list, for messages.
        skip_unreadable: give None for files that are empty or cannot be looked at.

    Raises:
        DatasetError: files that are not there, or, where they are not skipped, empty or unreadable ones.
    """
    on_disk = _Folder(folder)
    paths = [on_disk.find(image.file) for image in images]
    missing = [image for image, path in zip(images, paths, strict=True) if path is None]
    if missing:
        listed = f"{len(missing)} of {counted(len(images), 'listed image')}"
        first = f"{missing[0].file!r} (line {missing[0].line}) first"
        msg = f"{where}: {listed} not in {printable(folder)}, {first}"
        msg += "; get the missing files, or take their lines out"
        raise DatasetError(msg)
    found: list[FoundFile | None] = []
    for path in paths:
        assert path is not None
        try:
            n_bytes = file_size(path)
        except DatasetError:
            if not skip_unreadable:
                raise
            n_bytes = None
        found.append(None if n_bytes is None else FoundFile(str(path.relative_to(folder)), n_bytes))
    return found


class _Folder:
    """Files below a folder by name; by their letters in any case where the name itself is not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[Path, dict[str, list[str]]] = {}

    def find(self, file: str) -> Path | None:
        path = self._folder / file
        if path.is_file() or path.is_symlink():
            return path
        if path.parent not in self._names:
            self._names[path.parent] = _by_letters(path.parent)
        alike = self._names[path.parent].get(path.name.casefold(), [])
        return path.with_name(alike[0]) if len(alike) == 1 else None


def _by_letters(folder: Path) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    if folder.is_dir():
        for entry in visible(folder):
            names.setdefault(entry.name.casefold(), []).append(entry.name)
    return names
