"""Small files of any kind, written aside and renamed when whole."""

import os
import tempfile
from pathlib import Path

from fsnl.cache.errors import WriteError
from fsnl.cache.hdf5 import check_vacant


def write_whole(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Write a file that holds all of the bytes, or leave what was there.

    Raises:
        OccupiedError: something lies at `path` and `overwrite` is false, or a folder does.
        WriteError: no such folder, no permission, no space.
    """
    check_vacant(path, overwrite=overwrite)
    try:
        # A name may have 255 bytes, and a character of it four.
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", suffix=".part", dir=path.parent)
        aside = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            aside.chmod(0o666 & ~umask)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise WriteError(path, f"could not be written: {error.strerror}") from error
