"""Text files, written aside and renamed when whole."""

import os
import tempfile
from pathlib import Path

from fsnl.cache.errors import WriteError
from fsnl.cache.hdf5 import check_vacant


def write_text(path: Path, text: str, *, overwrite: bool) -> None:
    """Write UTF-8 with Unix line ends; bytes of a path that are not UTF-8 show as escapes.

    Raises:
        OccupiedError: something lies at `path` and `overwrite` is false.
        WriteError: no such folder, no permission, no space.
    """
    check_vacant(path, overwrite=overwrite)
    data = text.encode("utf-8", "backslashreplace")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
        aside = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            umask = os.umask(0)
            os.umask(umask)
            aside.chmod(0o666 & ~umask)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise WriteError(path, f"could not be written: {error.strerror}") from error
