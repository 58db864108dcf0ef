"""Every byte of a feature store held against its checksums."""

from pathlib import Path

from fsnl.cache import hdf5
from fsnl.cache.checksums import changed_datasets, is_sealed
from fsnl.cache.errors import FormatError
from fsnl.cache.reader import read_features, read_store
from fsnl.cache.schema import FEATURES_FORMAT


def verify_store(path: Path | str) -> None:
    """Read a feature store to the end; nothing is returned where all is as it was written.

    Raises:
        FormatError: it cannot be read, has no checksums, or holds arrays that do not fit theirs: all of
            them are named.
    """
    path = Path(path)
    with hdf5.opened(path, file_format=FEATURES_FORMAT) as file:
        if not is_sealed(file):
            raise FormatError(path, "has no checksums to verify; extract again")
        changed = sorted(changed_datasets(file))
        if changed:
            advice = "restore a copy, or extract again with --force"
            raise FormatError(path, f"damaged: {', '.join(changed)} not as written; {advice}")
        for split in read_store(path, file).splits:
            read_features(path, file, split=split)
