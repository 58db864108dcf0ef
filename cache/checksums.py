"""Checksums in a file of ours: of the bytes of each data set, and of everything else in each group.

They form a tree: a group's checksum covers its attributes, the names, dtypes, shapes and checksums of its
data sets, and the checksums of its groups. So the root's covers the file. FORMAT.md states the bytes.
"""

import hashlib
from collections.abc import Iterator, Mapping

import h5py
import numpy as np

from fsnl.cache.fingerprint import canonical_json
from fsnl.cache.schema import Json

DATASET_CHECKSUM = "sha256"
GROUP_CHECKSUM = "contents_sha256"
# Bytes of a data set that are read and hashed at a time.
BLOCK_BYTES = 1 << 24


def seal(group: h5py.Group) -> None:
    """Store the checksums of a group and all in it; data sets that have one already are not read again."""
    items = dict(group.items())
    for item in items.values():
        if isinstance(item, h5py.Group):
            seal(item)
        elif DATASET_CHECKSUM not in item.attrs:
            set_checksum(item, DATASET_CHECKSUM, dataset_sha256(item))
    set_checksum(group, GROUP_CHECKSUM, _contents_sha256(group, items))


def set_checksum(node: h5py.HLObject, name: str, digest: str) -> None:
    """Store a hex digest as an attribute of fixed length."""
    node.attrs.create(name, np.array(digest.encode(), dtype=h5py.string_dtype("utf-8", len(digest))))


def dataset_sha256(dataset: h5py.Dataset) -> str:
    """Hex SHA-256 over the values of a data set as they are stored, in C order, read in blocks."""
    digest = hashlib.sha256()
    if dataset.ndim and dataset.size:
        step = max(1, BLOCK_BYTES * len(dataset) // max(1, dataset.nbytes))
        for first in range(0, len(dataset), step):
            digest.update(dataset[first : first + step].tobytes())
    return digest.hexdigest()


def changed_groups(group: h5py.Group) -> Iterator[str]:
    """Names of the groups whose attributes or data sets' names, shapes and dtypes are not as written.

    Groups without a checksum, as of files made elsewhere, pass.
    """
    items = dict(group.items())
    for item in items.values():
        if isinstance(item, h5py.Group):
            yield from changed_groups(item)
    stored = _text_attribute(group, GROUP_CHECKSUM)
    if stored is not None and stored != _contents_sha256(group, items):
        yield group.name


def changed_datasets(group: h5py.Group) -> Iterator[str]:
    """Names of the data sets, in a group and all within, whose bytes are not as written; all are read."""
    for item in group.values():
        if isinstance(item, h5py.Group):
            yield from changed_datasets(item)
        elif _text_attribute(item, DATASET_CHECKSUM) != dataset_sha256(item):
            yield item.name


def is_sealed(file: h5py.File) -> bool:
    """Whether the file has checksums."""
    return GROUP_CHECKSUM in file.attrs


def _contents_sha256(group: h5py.Group, items: Mapping[str, h5py.HLObject]) -> str:
    """Hex SHA-256 of a group, given what it holds by name."""
    datasets: dict[str, Json] = {}
    groups: dict[str, Json] = {}
    for name, item in items.items():
        if isinstance(item, h5py.Group):
            groups[name] = _text_attribute(item, GROUP_CHECKSUM)
        else:
            datasets[name] = {
                "dtype": item.dtype.str,
                "shape": [int(n) for n in item.shape],
                "sha256": _text_attribute(item, DATASET_CHECKSUM),
            }
    attributes: dict[str, Json] = {
        name: _value(value) for name, value in group.attrs.items() if name != GROUP_CHECKSUM
    }
    contents: Json = {"attributes": attributes, "datasets": datasets, "groups": groups}
    return hashlib.sha256(canonical_json(contents).encode()).hexdigest()


def _value(value: object) -> Json:
    """An attribute as JSON: text, integer or truth value."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    msg = f"an attribute of type {type(value).__name__}"
    raise TypeError(msg)


def _text_attribute(node: h5py.HLObject, name: str) -> str | None:
    if name not in node.attrs:
        return None
    value = node.attrs[name]
    return value.decode() if isinstance(value, bytes) else str(value)
