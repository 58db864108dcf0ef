"""A hidden folder for what is not whole yet; those that processes left behind which died are removed."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl

_LOCK = "lock"


@contextlib.contextmanager
def part_folder(root: Path, *, name: str) -> Iterator[Path]:
    """A new folder ROOT/.NAME-... for the block, gone afterwards; first the abandoned ones are removed.

    A process holds the file `lock` in its folder under a lock that the system releases when the process
    ends, however it ends: a folder whose lock can be had is nobody's. Where there are no such locks, such
    folders stay.

    Args:
        root: a folder that is there.
        name: of what is made.

    Raises:
        OSError: ROOT cannot be written.
    """
    for folder in root.glob(f".{name}-*"):
        _remove_abandoned(folder)
    folder, lock = _made(root, name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def _made(root: Path, name: str) -> tuple[Path, IO[bytes]]:
    """A folder and its open, locked file; another one where the first was taken for abandoned meanwhile."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
        try:
            lock = (folder / _LOCK).open("wb")
        except OSError:
            folder.rmdir()
            raise
        with contextlib.suppress(OSError):
            if sys.platform != "win32":
                fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), (folder / _LOCK).stat()):
                return folder, lock
        lock.close()


def _remove_abandoned(folder: Path) -> None:
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError), (folder / _LOCK).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where somebody holds it
        shutil.rmtree(folder, ignore_errors=True)
