"""The feature store, written: a stream of batches to one HDF5 file that appears when it is whole."""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import h5py
import numpy as np

from fsnl.cache import hdf5
from fsnl.cache.arrays import F32, U64
from fsnl.cache.checksums import DATASET_CHECKSUM, set_checksum
from fsnl.cache.errors import WriteError
from fsnl.cache.fingerprint import labels_sha256, split_fingerprint
from fsnl.cache.schema import FEATURES_FORMAT, Json, Listing, StoreHeader


@dataclass(frozen=True, slots=True)
class StoreWriter:
    """A feature store in the making; see `new_store`."""

    path: Path
    header: StoreHeader
    file: h5py.File

    def add_split(
        self, listing: Listing, batches: Iterable[tuple[F32, U64]], *, request: dict[str, Json]
    ) -> None:
        """Write one split.

        Args:
            listing: its class names, labels and image ids: N rows.
            batches: (B, D) float32 embeddings and (B,) uint64 image digests, in row order, N rows in all.
            request: what was asked for, compared when the same is asked again.

        Raises:
            WriteError: no space.
            ValueError: the batches do not add up to N rows of one D.
        """
        group = self.file.create_group(f"splits/{listing.split}")
        hdf5.set_text(group, "fingerprint", split_fingerprint(self.header, listing))
        digest = labels_sha256(listing.class_names, listing.image_ids, listing.labels)
        hdf5.set_text(group, "labels_sha256", digest)
        hdf5.set_json(group, "request", request)
        n_rows = len(listing.image_ids)
        group.create_dataset("labels", data=listing.labels, dtype="<i8")
        hdf5.write_texts(group, "class_names", listing.class_names)
        hdf5.write_texts(group, "image_ids", listing.image_ids)
        digests = group.create_dataset("image_digests", shape=(n_rows,), dtype="<u8")
        rows = 0
        embeddings: h5py.Dataset | None = None
        # Hashed as they come: reading all of them back would take long.
        sums = hashlib.sha256(), hashlib.sha256()
        for batch, batch_digests in batches:
            if embeddings is None:
                embeddings = _create_embeddings(group, n_rows, batch.shape[1])
            if batch.shape[1:] != embeddings.shape[1:]:
                msg = f"a batch of shape {batch.shape} after others of D = {embeddings.shape[1]}"
                raise ValueError(msg)
            if rows + len(batch) <= n_rows:
                embeddings[rows : rows + len(batch)] = batch
                digests[rows : rows + len(batch)] = batch_digests
                sums[0].update(batch.astype("<f4", copy=False).tobytes())
                sums[1].update(batch_digests.astype("<u8", copy=False).tobytes())
            rows += len(batch)
        if rows != n_rows:
            msg = f"the batches hold {rows} rows, the listing {n_rows}"
            raise ValueError(msg)
        for dataset, of_bytes in zip((embeddings, digests), sums, strict=True):
            set_checksum(dataset, DATASET_CHECKSUM, of_bytes.hexdigest())

    def copy_split(self, source: Path, split: str) -> None:
        """Take over a split of another store of the same encoder, as it is."""
        with hdf5.opened(source, file_format=FEATURES_FORMAT) as other:
            other.copy(f"splits/{split}", self.file.require_group("splits"))


@contextlib.contextmanager
def new_store(
    path: Path, header: StoreHeader, *, overwrite: bool, aside: Path | None = None
) -> Iterator[StoreWriter]:
    """A new feature store, visible at `path` only when the block ends without an error.

    Args:
        path: the file.
        header: what all its splits have in common.
        overwrite: whether to replace what lies at `path`.
        aside: where it is written meanwhile, on the same file system; None for a new name beside `path`.

    Raises:
        OccupiedError: something lies at `path` and `overwrite` is false.
        WriteError: no such folder, no permission, no space.
    """
    with hdf5.written_aside(path, file_format=FEATURES_FORMAT, overwrite=overwrite, aside=aside) as file:
        hdf5.set_json(file, "dataset", asdict(header.dataset))
        hdf5.set_json(file, "encoder", asdict(header.encoder))
        preprocessing = None if header.preprocessing is None else asdict(header.preprocessing)
        hdf5.set_json(file, "preprocessing", preprocessing)
        hdf5.set_json(file, "environment", dict(header.environment))
        yield StoreWriter(path=path, header=header, file=file)
        if not file.get("splits"):
            raise WriteError(path, "a feature store needs at least one split")
        file.attrs["complete"] = np.True_


def _create_embeddings(group: h5py.Group, n_rows: int, dim: int) -> h5py.Dataset:
    """(n_rows, dim) float32, contiguous and allocated at once, so that it can be mapped into memory."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple((n_rows, dim))
    h5py.h5d.create(group.id, b"embeddings", h5py.h5t.IEEE_F32LE, space, dcpl=properties)
    dataset: h5py.Dataset = group["embeddings"]
    return dataset
