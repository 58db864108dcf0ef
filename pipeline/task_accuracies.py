"""Accuracies per task that somebody else published, as JSON or CSV, so that they can be compared.

JSON: objects in objects, down to lists of numbers. The innermost name is the method, the names above it are
the data set: `{"5-shot": {"aircraft": {"LR": [...], "NCC": [...]}}}`. CSV: a column per method, a row per
task; columns named `dataset`, `split`, `shot` or `group` together name the data set of a row, columns named
`task` or `episode` only number the rows.

Methods of one data set with the same number of tasks are taken to have had the same tasks in the same order.
Numbers are in per cent where any number of the file is above 1, else shares.
"""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsnl.cache.errors import FormatError
from fsnl.pipeline.compare import EpisodeAccuracies

GROUP_COLUMNS = ("dataset", "split", "shot", "group")
NUMBER_COLUMNS = ("task", "episode")
DELIMITERS = ",;\t"
# Nested objects in JSON; Python's own limit is a crash, not an answer.
MOST_LEVELS = 20


@dataclass(frozen=True, slots=True)
class _Column:
    """Values of one method on one data set, with the place of each for messages."""

    data_set: str
    method: str
    values: list[float]


def read_task_accuracies(path: Path | str) -> list[EpisodeAccuracies]:
    """Read published accuracies.

    Args:
        path: a file whose name ends in `.json` or `.csv`.

    Returns:
        One per method and data set, in the order of the file; no classes, sampling unknown.

    Raises:
        FormatError: not there, not such a file, or a value that is no accuracy.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise FormatError(path, "is a folder, device or pipe, needed a JSON or CSV file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise FormatError(path, "no such file") from error
    except UnicodeDecodeError as error:
        raise FormatError(path, f"is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error
    columns = list(_from_csv(path, text) if path.suffix.lower() == ".csv" else _from_json(path, text))
    if not columns:
        raise FormatError(path, "holds no list of accuracies")
    per_cent = any(value > 1 for column in columns for value in column.values)
    for column in columns:
        _check_range(path, column, most=100 if per_cent else 1)
    return [
        EpisodeAccuracies(
            source=str(path),
            method=column.method,
            data_set=column.data_set,
            pairing=f"{len(column.values)} tasks",
            sampling="unknown",
            accuracies=np.array(column.values) / (100 if per_cent else 1),
            classes=None,
            summary=None,
        )
        for column in columns
    ]


def _check_range(path: Path, column: _Column, *, most: float) -> None:
    if not column.values:
        raise FormatError(path, f"{_place(column)} has no tasks")
    for i, value in enumerate(column.values):
        if not 0 <= value <= most:  # NaN too
            unit = "in per cent" if most > 1 else "as shares of 1"
            raise FormatError(path, f"{_place(column)}, task {i + 1}: {value} is no accuracy {unit}")


def _place(column: _Column) -> str:
    where = f"{column.data_set}: " if column.data_set else ""
    return f"{where}method {column.method!r}"


def _from_json(path: Path, text: str) -> Iterator[_Column]:
    try:
        content = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, f"is not JSON ({error})") from error
    if isinstance(content, dict) and str(content.get("format", "")).startswith("fsnl."):
        wanted = "the result file that fsnl-score writes with --out"
        raise FormatError(path, f"holds summaries and no accuracies per episode; compare {wanted}")
    if isinstance(content, list):
        content = {path.stem: content}
    yield from _walk(path, content, names=())


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object whose names differ; of two of one name json would keep the last.

    Raises:
        ValueError: a name stands twice.
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in [other for other, _ in pairs[:i]])
        msg = f"{twice!r} stands twice in one object"
        raise ValueError(msg)
    return content


def _walk(path: Path, node: object, *, names: tuple[str, ...]) -> Iterator[_Column]:
    where = " / ".join(names) or "the top"
    if isinstance(node, dict) and len(names) < MOST_LEVELS:
        for name, below in node.items():
            yield from _walk(path, below, names=(*names, name))
    elif isinstance(node, list):
        values = []
        for i, value in enumerate(node):
            if isinstance(value, bool) or not isinstance(value, int | float):
                shown = json.dumps(value)[:40]
                raise FormatError(path, f"{where}, task {i + 1}: {shown} is not a number")
            values.append(_number(str(value)))
        yield _Column(" / ".join(names[:-1]), names[-1], values)
    else:
        raise FormatError(path, f"{where}: needed an object of methods or a list of accuracies")


def _from_csv(path: Path, text: str) -> list[_Column]:
    header = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=header.count)
    try:
        rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter, strict=True) if row]
    except csv.Error as error:
        raise FormatError(path, f"is not CSV ({error})") from error
    if not rows:
        raise FormatError(path, "is empty")
    names = [name.strip() for name in rows[0]]
    kinds = [name.lower() for name in names]
    methods = [i for i, kind in enumerate(kinds) if kind not in (*GROUP_COLUMNS, *NUMBER_COLUMNS)]
    groups = [i for i, kind in enumerate(kinds) if kind in GROUP_COLUMNS]
    if not any(math.isnan(_number(name)) for name in names):
        raise FormatError(path, "has numbers in its first row, which names the methods")
    if len(set(names)) < len(names):
        raise FormatError(path, "has two columns of one name; a column's name is its method")
    found: dict[tuple[str, int], list[float | None]] = {}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise FormatError(path, f"row {line} has {len(row)} cells, the header has {len(names)}")
        data_set = " / ".join(row[i].strip() for i in groups)
        for i in methods:
            found.setdefault((data_set, i), []).append(_cell(path, row[i], line=line, name=names[i]))
    return [
        _whole(path, data_set, names[i], values)
        for (data_set, i), values in found.items()
        if any(value is not None for value in values)  # else the method was not tried on that data set
    ]


def _cell(path: Path, text: str, *, line: int, name: str) -> float | None:
    if not text.strip():
        return None
    value = _number(text)
    if math.isnan(value):
        raise FormatError(path, f"row {line}, column {name!r}: {text.strip()[:40]!r} is not a number")
    return value


def _whole(path: Path, data_set: str, method: str, values: list[float | None]) -> _Column:
    present = [value for value in values if value is not None]
    column = _Column(data_set, method, present)
    if len(present) < len(values):
        missing = values.index(None) + 1
        raise FormatError(path, f"{_place(column)} has no accuracy for task {missing}")
    return column


def _number(text: str) -> float:
    """NaN where it is none."""
    try:
        return float(text)
    except (ValueError, OverflowError):
        return math.nan
