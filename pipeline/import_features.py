"""Features made elsewhere to a feature store."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from fsnl.cache import hdf5
from fsnl.cache.arrays import F32, I64, U64
from fsnl.cache.errors import DatasetError, MismatchError
from fsnl.cache.holder import held, this_process
from fsnl.cache.schema import DatasetInfo, EncoderInfo, Json, LabelsUsed, Listing, StoreHeader
from fsnl.cache.shards import shard_folder
from fsnl.cache.writer import new_store
from fsnl.pipeline.import_layouts import ImportedFeatures, read_features
from fsnl.pipeline.sharding.existing import check_same, existing_store
from fsnl.pipeline.sharding.health import RowHealth

ROWS_AT_A_TIME = 4096
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Which features become which split of a store.

    Attributes:
        file: the features.
        labels: a `.npy` file of their labels, None where they have them.
        split: its name in the store.
        dataset: what the images are called.
        encoder: what made the features is called.
        labels_used: labels that the encoder's training saw, None where unknown.
    """

    file: Path
    labels: Path | None = None
    split: str = "test"
    dataset: str = "imported"
    encoder: str = "imported"
    labels_used: int | None = None


def import_features(
    request: ImportRequest,
    *,
    out: Path,
    force: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write features as one split of a feature store; another split of the same encoder is kept.

    Args:
        request: which features.
        out: the store.
        force: replace what lies at `out`, whatever it is.
        note: takes lines for the user.

    Returns:
        The store's path.

    Raises:
        PickleError, FormatError, DatasetError: features that cannot be read.
        MismatchError: a store at `out` of another data set or encoder, or whose split has other features.
        OccupiedError, HeldError, WriteError: `out` cannot be written.
    """
    hdf5.check_vacant(out, overwrite=True)
    existing = None if force else existing_store(out)
    found = read_features(request.file, labels=request.labels)
    if found.embeddings.shape[1] == 0:
        msg = f"{request.file}: its features have 0 dimensions, needed at least 1"
        raise DatasetError(msg)
    note(f"{request.split}: {len(found.class_names)} classes, {len(found.labels):,} images, {found.layout}")
    header = _header(request)
    record = _record(request)
    if existing is not None:
        check_same(existing, header, [])
        if existing.requests.get(request.split) == record:
            note(f"{out} is complete: {request.split} imported before")
            return out
        if request.split in existing.splits:
            reason = f"its split {request.split!r} has other features; use another --out, or --force"
            raise MismatchError(out, reason)
    order = np.lexsort((_ranks(found.image_ids), found.labels))  # by class, then by id
    health, listing = RowHealth(), _listing(request.split, found, order)
    folder = shard_folder(out)
    folder.make()
    try:
        with (
            held(folder.lock, this_process(), target=out),
            new_store(out, header, overwrite=force or existing is not None, aside=folder.assembled) as store,
        ):
            for split in existing.splits if existing is not None else ():
                store.copy_split(out, split)
            store.add_split(listing, health.seen(_batches(found, order)), request=record)
    finally:
        folder.remove_if_empty()
    for line in health.warnings(listing):
        note(line)
    return out


def _header(request: ImportRequest) -> StoreHeader:
    return StoreHeader(
        dataset=DatasetInfo(request.dataset, native_size=None),
        encoder=EncoderInfo(
            name=request.encoder,
            weights=UNKNOWN,
            weights_sha256=None,
            layer=UNKNOWN,
            precision=UNKNOWN,
            labels_used=LabelsUsed(train=request.labels_used, val=None),
        ),
        preprocessing=None,
        environment={"fsnl": metadata.version("fsnl")},
    )


def _record(request: ImportRequest) -> dict[str, Json]:
    """What was asked, to tell the same from something else: contents, and not paths."""
    return {
        "imported_from": request.file.name,
        "sha256": _file_sha256(request.file),
        "labels_sha256": None if request.labels is None else _file_sha256(request.labels),
        "split": request.split,
    }


def _file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _ranks(image_ids: tuple[str, ...]) -> I64:
    """The place of each id among all, by code point."""
    ranks = np.empty(len(image_ids), dtype=np.int64)
    ranks[sorted(range(len(image_ids)), key=image_ids.__getitem__)] = np.arange(len(image_ids))
    return ranks


def _listing(split: str, found: ImportedFeatures, order: I64) -> Listing:
    n_bytes = found.embeddings.shape[1] * found.embeddings.itemsize
    return Listing(
        split=split,
        class_names=found.class_names,
        labels=found.labels[order],
        image_ids=tuple(found.image_ids[row] for row in order.tolist()),
        source_sizes=np.full(len(order), n_bytes, dtype=np.int64),
    )


def _batches(found: ImportedFeatures, order: I64) -> Iterator[tuple[F32, U64]]:
    """Embeddings in store order, with digests of 0: nobody knows the images."""
    for first in range(0, len(order), ROWS_AT_A_TIME):
        rows = order[first : first + ROWS_AT_A_TIME]
        with np.errstate(over="ignore"):  # what becomes infinite is told
            embeddings = np.asarray(found.embeddings[rows], dtype=np.float32)
        yield embeddings, np.zeros(len(rows), dtype=np.uint64)
