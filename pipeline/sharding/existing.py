"""The store that lies at `--out` already, against what is asked now."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from fsnl.cache.errors import FormatError, MismatchError, OccupiedError
from fsnl.cache.fingerprint import split_fingerprint
from fsnl.cache.reader import FeatureStore, open_store
from fsnl.cache.schema import Json, Listing, StoreHeader
from fsnl.pipeline.sharding.identity import differences

ADVICE = "use another --out, or --force to replace it"


def existing_store(path: Path) -> FeatureStore | None:
    """The store at `path`, None where nothing is.

    Raises:
        OccupiedError: something else is there.
    """
    if not path.exists():
        return None
    try:
        return open_store(path)
    except FormatError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise OccupiedError(path, f"{reason}; {ADVICE}") from error


def is_complete(store: FeatureStore | None, requests: Mapping[str, dict[str, Json]]) -> bool:
    """Whether a store has all that is asked, per split, by the same request."""
    return store is not None and all(store.requests.get(split) == asked for split, asked in requests.items())


def check_same(store: FeatureStore, header: StoreHeader, listings: Sequence[Listing]) -> None:
    """Refuse to mix.

    Args:
        store: what is there.
        header: what is asked; its environment does not count.
        listings: of the splits that are asked for.

    Raises:
        MismatchError: every field in which they differ is named.
    """
    header = replace(header, environment=store.header.environment)
    differ = differences(asdict(store.header), asdict(header))
    for listing in listings:
        known = store.fingerprints.get(listing.split)
        if not differ and known not in (None, split_fingerprint(header, listing)):
            differ.append(_listing_difference(store, listing))
    if differ:
        raise MismatchError(store.path, f"made for something else: {'; '.join(differ)}; {ADVICE}")


def _listing_difference(store: FeatureStore, listing: Listing) -> str:
    """In words, how the images of a split differ from those that were encoded."""
    stored = store.features(listing.split)
    before, now = set(stored.image_ids), set(listing.image_ids)
    for word, names in (("added", now - before), ("missing", before - now)):
        if names:
            images = "1 image" if len(names) == 1 else f"{len(names):,} images"
            return f"split {listing.split!r}: {images} {word}, {min(names)!r} first"
    if stored.class_names != listing.class_names or not np.array_equal(stored.labels, listing.labels):
        return f"split {listing.split!r}: classes or labels changed"
    return f"split {listing.split!r}: image files changed in size"
