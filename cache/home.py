"""Where stores go when no file is named: $FSNL_HOME, else the platform's cache folder for the user."""

import os
from pathlib import Path

from platformdirs import user_cache_path

from fsnl.cache.errors import CacheError, FormatError
from fsnl.cache.reader import FeatureStore, open_store


def fsnl_home() -> Path:
    """The folder; it need not exist yet."""
    named = os.environ.get("FSNL_HOME")
    return Path(named) if named else user_cache_path("fsnl", appauthor=False)


def newest_store() -> FeatureStore:
    """The complete feature store in the folder that was written last.

    Raises:
        CacheError: there is none.
    """
    home = fsnl_home()
    files = [path for path in home.glob("*.h5") if path.is_file()] if home.is_dir() else []
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            return open_store(path)
        except FormatError:
            continue
    raise CacheError(home, "holds no feature store; name one, or make one with fsnl-extract")
