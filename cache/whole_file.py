"""Small files of any kind, written aside and renamed when whole."""

import contextlib
import glob
import os
import tempfile
from pathlib import Path

from fsnl.cache.hdf5 import check_vacant, publish, write_errors

# A name may have 255 bytes, and a character of it four.
_KEPT = 50


def remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed while they wrote this file left beside it.

    To be called by who alone writes it. Of names too long to stand whole in those of such files, none are
    removed: they might be another file's.
    """
    if len(path.name) > _KEPT or not path.parent.is_dir():
        return
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.????????.part"):
        with contextlib.suppress(OSError):
            leftover.unlink()


def write_whole(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Write a file that holds all of the bytes, or leave what was there.

    Raises:
        OccupiedError: something lies at `path` and `overwrite` is false, or a folder does.
        WriteError: no such folder, no permission, no space.
    """
    check_vacant(path, overwrite=overwrite)
    with write_errors(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:_KEPT]}.", suffix=".part", dir=path.parent)
        aside = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            publish(aside, path, overwrite=overwrite)
        finally:
            aside.unlink(missing_ok=True)
