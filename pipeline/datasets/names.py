"""Names of classes and files: one spelling, how they show in messages, and the choice of classes."""

import difflib
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from fsnl.cache.errors import DatasetError

N_SHOWN = 5  # names in a message, before "and N more"


def one_spelling(name: str) -> str:
    """The name in Unicode's composed form (NFC): macOS and Linux write the same umlaut differently."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def printable(path: Path | str) -> str:
    """A path for a message; bytes that are not UTF-8 show as `\\udcff` and can be printed anywhere."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def some_of(names: Iterable[str]) -> str:
    """The first few names for a message: `'a', 'b' and 7 more`."""
    quoted = [repr(name) for name in names]
    more = len(quoted) - N_SHOWN
    return ", ".join(quoted[:N_SHOWN]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str, *, plural: str = "") -> str:
    """`1 image`, `2 images`, `0 classes`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def choose_classes(available: Sequence[str], *, wanted: Sequence[str] | None, where: str) -> tuple[str, ...]:
    """The classes to keep, sorted by code point.

    Args:
        available: the names there are, in one spelling, each once.
        wanted: the names to keep, None for all.
        where: what holds the classes, for messages.

    Returns:
        At least two names.

    Raises:
        DatasetError: a wanted class is missing, or fewer than two classes are left.
    """
    kept = set(available) if wanted is None else {one_spelling(name) for name in wanted}
    missing = sorted(kept.difference(available))
    if missing:
        near = difflib.get_close_matches(missing[0], available, n=1)
        hint = f"; the closest to {missing[0]!r} is {near[0]!r}" if near else ""
        classes = counted(len(missing), "class", plural="classes")
        msg = f"{where}: {classes} asked for, not among its {len(available)}: "
        raise DatasetError(msg + some_of(missing) + hint)
    if len(kept) < 2:
        found = f"one class alone ({some_of(kept)})" if kept else "no class"
        msg = f"{where}: {found}; few-shot episodes need at least two classes"
        raise DatasetError(msg)
    return tuple(sorted(kept))
