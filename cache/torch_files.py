"""Files that seem to be of `torch.save`: what they would do, told without unpacking or running anything."""

import re
import zipfile
from pathlib import Path

from fsnl.cache.errors import PickleError
from fsnl.cache.pickles import read_pickle

# How unpicklers that load weights only, of torch 2.0 and later, name what they refuse.
_REFUSED = re.compile(r"(?:GLOBAL|class) ([\w.]+)")

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


def refused_global(path: Path, error: Exception) -> str | None:
    """The class or function for which torch refused a file; None where it refused it for something else.

    In plain pickles torch stops at the operations of protocols other than its own, before it comes to what
    they ask for: of those it is the first beyond arrays and containers.

    Args:
        path: the file.
        error: the `UnpicklingError` of `torch.load(weights_only=True)`.
    """
    if refused := _REFUSED.search(str(error)):
        return refused[1]
    try:
        read_pickle(path)
    except PickleError as other:
        asked = re.search(r"refused, for it asks for ([\w.]+)", str(other))
        return asked[1] if asked else None
    return None


def is_torchscript(path: Path) -> bool:
    """Whether this is an archive of `torch.jit.save`, which holds code."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return False
