"""Lists of class names that people keep: a text, a CSV or a JSON file, told apart by the extension.

* `.json`: a list of names, or an object that holds one under `classes`, or under the split's name.
* `.csv`, `.tsv`: the column called class, class_name, label or name, in any letter case, where a name may
  stand in many rows (Ravi and Larochelle's `filename,label`); or one column without a heading.
* anything else: one name a line. Blank lines are skipped. There are no comments: a class may be called `#1`.

All are UTF-8, with or without a byte order mark, with any line ends. Space around a name is dropped.
"""

import csv
import io
import json
from collections import Counter
from pathlib import Path

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.names import one_spelling, printable, some_of

_HEADINGS = ("class", "class_name", "label", "name")


def read_class_file(path: Path, *, split: str | None = None) -> tuple[str, ...]:
    """Class names in the order of the file, in Unicode's composed form.

    Args:
        path: the file.
        split: which list to take from a JSON object of lists by split; None where there is no split.

    Returns:
        At least one name, each once.

    Raises:
        DatasetError: the file is missing, unreadable, no UTF-8 text, empty, of an unknown shape, or
            lists a name twice.
    """
    text = read_text(path)
    suffix = path.suffix.lower()
    try:
        if suffix == ".json":
            names = _from_json(text, split=split)
        elif suffix in (".csv", ".tsv"):
            names = _from_table(text, delimiter=delimiter_of(text, suffix))
        else:
            names = list(io.StringIO(text, newline=None))
    except ValueError as error:
        msg = f"{printable(path)}: {error}"
        raise DatasetError(msg) from error
    names = [one_spelling(stripped) for name in names if (stripped := name.strip())]
    if not names:
        msg = f"{printable(path)}: no class name in it"
        raise DatasetError(msg)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        msg = f"{printable(path)}: {some_of(twice)} listed more than once"
        raise DatasetError(msg)
    return tuple(names)


def read_text(path: Path) -> str:
    """A UTF-8 text file, with or without a byte order mark; `DatasetError` where it is none."""
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"{printable(path)}: cannot be read: {error.strerror}"
        raise DatasetError(msg) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{printable(path)}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        raise DatasetError(msg) from error
    if "\0" in text:
        msg = f"{printable(path)}: not a text file; a list is text, CSV or JSON"
        raise DatasetError(msg)
    return text


def _from_json(text: str, *, split: str | None) -> list[str]:
    """Names of a JSON list, or of the list that an object holds; `ValueError` says what is wrong."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"not JSON: {error}"
        raise ValueError(msg) from error
    if isinstance(value, dict):
        key = split if split in value else "classes"
        if key not in value:
            asked = f"neither 'classes' nor {split!r}" if split is not None else "no 'classes'"
            msg = f"an object with {asked} in it, but {some_of(value)}; give a list of class names"
            raise ValueError(msg)
        value = value[key]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        msg = "not a list of class names, or an object that holds one under 'classes' or the split's name"
        raise ValueError(msg)
    return list(value)


def delimiter_of(text: str, suffix: str) -> str:
    """Tab in `.tsv`; else comma, or the semicolon of spreadsheets where a comma is the decimal point."""
    heading = text.partition("\n")[0]
    if suffix == ".tsv":
        return "\t"
    return ";" if ";" in heading and "," not in heading else ","


def _from_table(text: str, *, delimiter: str) -> list[str]:
    """Names in a CSV, each once where a heading says which column holds them."""
    try:
        lines = io.StringIO(text, newline="")
        rows = [row for row in csv.reader(lines, delimiter=delimiter, strict=True) if row]
    except csv.Error as error:
        msg = f"not a CSV file: {error}"
        raise ValueError(msg) from error
    if not rows:
        return []
    headings = [heading.strip().lower() for heading in rows[0]]
    known = [headings.index(heading) for heading in _HEADINGS if heading in headings]
    if not known:
        if any(len(row) > 1 for row in rows):
            msg = f"no column called {', '.join(_HEADINGS)}; the first row is {some_of(rows[0])}"
            raise ValueError(msg)
        return [row[0] for row in rows]
    short = [i for i, row in enumerate(rows, start=1) if len(row) != len(headings)]
    if short:
        msg = f"row {short[0]} has {len(rows[short[0] - 1])} fields, the heading {len(headings)}"
        raise ValueError(msg)
    return list(dict.fromkeys(row[known[0]].strip() for row in rows[1:]))
