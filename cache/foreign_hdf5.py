"""HDF5 files of others, as arrays."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fsnl.cache.errors import FormatError


def is_hdf5(path: Path) -> bool:
    """Whether a file begins as HDF5 does."""
    return bool(h5py.is_hdf5(path))


def read_root_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The data sets right below the root, by name, read whole.

    Raises:
        FormatError: the file is damaged.
    """
    try:
        with h5py.File(path, "r", locking=False) as file:
            return {
                name: np.asarray(item[()]) for name, item in file.items() if isinstance(item, h5py.Dataset)
            }
    except (OSError, RuntimeError, ValueError, TypeError, LookupError) as error:
        raise FormatError(path, f"truncated or damaged HDF5 file ({' '.join(str(error).split())})") from error
