"""The feature store, read: small embeddings whole, large ones through a memory map."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np

from fsnl.cache import hdf5
from fsnl.cache.arrays import F32
from fsnl.cache.errors import FormatError, MismatchError
from fsnl.cache.fingerprint import labels_sha256
from fsnl.cache.schema import (
    FEATURES_FORMAT,
    DatasetInfo,
    EncoderInfo,
    Features,
    Json,
    LabelsUsed,
    Preprocessing,
    StoreHeader,
)

T = TypeVar("T")

# Embeddings of more bytes than this are mapped, not read.
WHOLE_READ_BYTES = 1 << 29


@dataclass(frozen=True, slots=True)
class FeatureStore:
    """What a feature store holds; the arrays are read by `features`.

    Attributes:
        path: the file.
        header: data set, encoder, preprocessing, environment.
        splits: names of its splits, sorted.
        requests: per split, what was asked for when it was extracted.
        fingerprints: per split, the digest of what decides its embeddings.
    """

    path: Path
    header: StoreHeader
    splits: tuple[str, ...]
    requests: Mapping[str, dict[str, Json]]
    fingerprints: Mapping[str, str]

    def features(self, split: str = "test") -> Features:
        """Read one split, embeddings included.

        Raises:
            MismatchError: the store has no such split.
            FormatError: the file is damaged.
        """
        if split not in self.splits:
            have = ", ".join(self.splits)
            advice = f"extract it with fsnl-extract --split {split}"
            raise MismatchError(self.path, f"has no split {split!r}, only {have}; {advice}")
        with hdf5.opened(self.path, file_format=FEATURES_FORMAT) as file:
            return read_features(self.path, file, split=split)


def open_store(path: Path | str) -> FeatureStore:
    """Open a feature store.

    Raises:
        FormatError: not there, not a feature store, incomplete, damaged, or of another format version.
    """
    path = Path(path)
    with hdf5.opened(path, file_format=FEATURES_FORMAT) as file:
        return read_store(path, file)


def read_store(path: Path, file: h5py.File) -> FeatureStore:
    """What the attributes of an open feature store say; see `open_store`."""
    if not file.attrs.get("complete", False):
        raise FormatError(path, "is incomplete; extract again")
    header = StoreHeader(
        dataset=_record(file, "dataset", lambda d: DatasetInfo(**d)),
        encoder=_record(file, "encoder", _encoder_info),
        preprocessing=_record(file, "preprocessing", _preprocessing),
        environment=_record(file, "environment", dict),
    )
    groups = file["splits"]
    return FeatureStore(
        path=path,
        header=header,
        splits=tuple(sorted(groups)),
        requests={split: _record(groups[split], "request", dict) for split in groups},
        fingerprints={split: hdf5.text_attribute(groups[split], "fingerprint") for split in groups},
    )


def _record(node: h5py.HLObject, name: str, make: Callable[[Any], T]) -> T:
    """A value of ours from a JSON attribute."""
    data = hdf5.json_attribute(node, name)
    try:
        return make(data)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        msg = f"attribute {name} of {node.name} does not hold what it should ({error})"
        raise KeyError(msg) from error


def _encoder_info(data: dict[str, Any]) -> EncoderInfo:
    return EncoderInfo(**{**data, "labels_used": LabelsUsed(**data["labels_used"])})


def _preprocessing(data: dict[str, Any] | None) -> Preprocessing | None:
    if data is None:
        return None
    return Preprocessing(**{**data, "mean": tuple(data["mean"]), "std": tuple(data["std"])})


def read_features(path: Path, file: h5py.File, *, split: str) -> Features:
    """One split of an open feature store; see `FeatureStore.features`."""
    group = file[f"splits/{split}"]
    labels = hdf5.read_integers(group, "labels", ndim=1)
    class_names = hdf5.read_texts(group, "class_names")
    image_ids = hdf5.read_texts(group, "image_ids")
    digests = np.asarray(group["image_digests"][()], dtype=np.uint64)
    embeddings = _read_embeddings(path, group["embeddings"])
    if not len(embeddings) == len(labels) == len(image_ids) == len(digests):
        raise FormatError(path, f"split {split!r}: embeddings, labels, ids and digests differ in length")
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(class_names):
        raise FormatError(path, f"split {split!r}: labels outside 0..{len(class_names) - 1}")
    digest = hdf5.text_attribute(group, "labels_sha256")
    if digest != labels_sha256(class_names, image_ids, labels):
        reason = f"split {split!r}: names, ids or labels do not fit labels_sha256: damaged or edited"
        raise FormatError(path, f"{reason}; extract again")
    return Features(
        split=split,
        embeddings=embeddings,
        labels=labels,
        class_names=class_names,
        image_ids=image_ids,
        image_digests=digests,
        labels_sha256=digest,
    )


def _read_embeddings(path: Path, dataset: h5py.Dataset) -> F32:
    """(N, D) float32; a read-only memory map where they are many."""
    if dataset.ndim != 2 or dataset.dtype != np.dtype("<f4"):
        msg = f"{dataset.name} is not a float32 array of two dimensions"
        raise KeyError(msg)
    offset = dataset.id.get_offset()
    if dataset.nbytes <= WHOLE_READ_BYTES or offset is None:
        return np.asarray(dataset[()], dtype=np.float32)
    return np.memmap(path, dtype=np.float32, mode="r", offset=offset, shape=dataset.shape)
