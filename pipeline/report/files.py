"""Text files, written aside and renamed when whole."""

from pathlib import Path

from fsnl.cache.whole_file import write_whole


def write_text(path: Path, text: str, *, overwrite: bool) -> None:
    """Write UTF-8 with Unix line ends; bytes of a path that are not UTF-8 show as escapes.

    Raises:
        OccupiedError: something lies at `path` and `overwrite` is false.
        WriteError: no such folder, no permission, no space.
    """
    write_whole(path, text.encode("utf-8", "backslashreplace"), overwrite=overwrite)
