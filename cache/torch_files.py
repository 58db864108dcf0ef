"""Files that seem to be of `torch.save`: what they would do, told without unpacking or running anything."""

import re
import zipfile
from pathlib import Path

from fsnl.cache.errors import PickleError
from fsnl.cache.pickles import read_pickle

# Tensors hardly shrink, and torch does not compress: what unpacks to so many times its size fills a memory.
_MOST_UNPACKED = 100


def unpacking_refused(path: Path) -> str | None:
    """Why an archive shall not be unpacked; None where it may be, is none, or cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        size = path.stat().st_size
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return None
    if unpacked <= _MOST_UNPACKED * size:
        return None
    return f"refused, for its {size:,} bytes unpack to {unpacked:,}; save it anew with torch.save"


def refused_global(path: Path) -> str | None:
    """The first class or function that a plain pickle asks for beyond arrays and containers, None for none.

    Torch stops at the operations of pickle protocols other than its own before it comes to what they ask for.
    """
    try:
        read_pickle(path)
    except PickleError as error:
        asked = re.search(r"refused, for it asks for ([\w.]+)", str(error))
        return asked[1] if asked else None
    return None


def is_torchscript(path: Path) -> bool:
    """Whether this is an archive of `torch.jit.save`, which holds code."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return False
