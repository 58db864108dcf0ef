"""Writing HDF5 so that a full disk is an error, and not a crash."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py


@contextlib.contextmanager
def new_hdf5(path: Path, **options: Any) -> Iterator[h5py.File]:
    """A new HDF5 file; what it held is lost.

    The HDF5 library cannot let go of a file that it failed to write: closing it fails, and when the
    interpreter ends it tries again and crashes. So it writes through `_Disk`, where only the first failure
    is one, and is closed a second time where the first did not succeed.

    Args:
        path: the file.
        options: of `h5py.File`.

    Yields:
        The open file.

    Raises:
        OSError: it could not be written, as the system said the first time.
    """
    disk = _Disk(path)
    file = h5py.File(disk, "w", **options)
    try:
        with file:
            yield file
    finally:
        if file.id:
            file.close()
        disk.close()
        if disk.failure is not None:
            raise disk.failure


class _Disk(io.RawIOBase):
    """The file beneath: the first failure raises; writes after it are taken without effect."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.failure: OSError | None = None
        self._file = path.open("w+b", buffering=0)

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        n_bytes = len(left)
        while left and self.failure is None:
            try:
                left = left[self._file.write(left) :]
            except OSError as error:
                self.failure = error
                raise
        return n_bytes

    def truncate(self, size: int | None = None) -> int:
        if self.failure is not None:
            return size or 0
        try:
            return self._file.truncate(size)
        except OSError as error:
            self.failure = error
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self._file.close()
        super().close()
