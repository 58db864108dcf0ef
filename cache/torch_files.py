"""Archives that `torch.save` wrote, looked at before anything in them is unpacked."""

import zipfile
from pathlib import Path

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
