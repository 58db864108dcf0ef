"""Digests: of an image, of a split's labels, of episodes. FORMAT.md states the bytes that are hashed."""

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import numpy as np

from fsnl.cache.arrays import I64, U8, U64
from fsnl.cache.schema import FORMAT_VERSION, Episodes, Json, Listing, StoreHeader


def image_digest(image: U8) -> int:
    """Digest of one decoded image: equal for pixel-identical images, whatever their file format.

    Args:
        image: (H, W, 3) uint8 RGB, before any resize.

    Returns:
        Unsigned 64-bit integer: BLAKE2b with 8 bytes of digest, read little-endian, over H and W as
        int64 little-endian, then the bytes of the image in C order.
    """
    digest = hashlib.blake2b(struct.pack("<2q", *image.shape[:2]), digest_size=8)
    digest.update(np.ascontiguousarray(image).data)
    return int.from_bytes(digest.digest(), "little")


def equal_digests(digests: U64) -> list[I64]:
    """Groups of rows with the same digest, two rows or more in each, in the order of their first rows.

    >>> [group.tolist() for group in equal_digests(np.array([7, 3, 9, 3, 7, 3], dtype=np.uint64))]
    [[0, 4], [1, 3, 5]]
    """
    order = np.argsort(digests, kind="stable")
    changes = np.flatnonzero(np.diff(digests[order])) + 1
    starts, ends = np.append(0, changes), np.append(changes, len(order))
    several = ends - starts > 1  # most are alone: to cut those out too takes longer than all else
    groups = [order[start:end] for start, end in zip(starts[several], ends[several], strict=True)]
    return sorted(groups, key=lambda group: int(group[0]))


def labels_sha256(class_names: Sequence[str], image_ids: Sequence[str], labels: I64) -> str:
    """Digest of what episodes are drawn from: the same for every encoder's store of one split.

    Args:
        class_names: C names.
        image_ids: N names.
        labels: (N,) int64.

    Returns:
        Hex SHA-256 over C and N as int64 little-endian, each class name in UTF-8 with one zero byte
        after it, each image id likewise, then the labels as int64 little-endian.
    """
    digest = hashlib.sha256()
    digest.update(np.array([len(class_names), len(image_ids)], dtype="<i8").tobytes())
    for names in (class_names, image_ids):
        digest.update(b"".join(name.encode() + b"\0" for name in names))
    digest.update(np.ascontiguousarray(labels, dtype="<i8").tobytes())
    return digest.hexdigest()


def arrays_sha256(arrays: Iterable[I64]) -> str:
    """Hex SHA-256 over integer arrays, each as int64 little-endian in C order, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<i8").data)
    return digest.hexdigest()


def queries_sha256(episodes: Episodes) -> str:
    """Hex SHA-256 of classes and query: equal for runs whose queries are paired, whatever their shots."""
    return arrays_sha256((episodes.classes, episodes.query))


def episodes_sha256(episodes: Episodes) -> str:
    """Hex SHA-256 of classes, support and query."""
    return arrays_sha256((episodes.classes, episodes.support, episodes.query))


def canonical_json(value: Json) -> str:
    """The one text of a JSON value: sorted keys, no spaces, no escapes that UTF-8 does not need.

    Those are the bytes of file names that are not UTF-8, which Python holds as lone surrogates: `\\udce9`.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode()


def split_fingerprint(header: StoreHeader, listing: Listing) -> str:
    """Digest of what decides a split's embeddings: its listing, the encoder, the preprocessing.

    Environment (batch size, device, library versions), dates, folders and the labels that the encoder's
    training cost are left out: they change no embedding, or only its last digits.

    Returns:
        Hex SHA-256 of a canonical JSON text; FORMAT.md lists its keys.
    """
    identity: Json = {
        **header_identity(header),
        "split": listing.split,
        "labels_sha256": labels_sha256(listing.class_names, listing.image_ids, listing.labels),
        "source_sizes_sha256": arrays_sha256((listing.source_sizes,)),
    }
    return hashlib.sha256(canonical_json(identity).encode()).hexdigest()


def header_identity(header: StoreHeader) -> dict[str, Json]:
    """What of a header decides embeddings, as JSON."""
    encoder = asdict(header.encoder)
    del encoder["labels_used"]
    return {
        "format_version": FORMAT_VERSION,
        "dataset": header.dataset.name,
        "encoder": encoder,
        "preprocessing": None if header.preprocessing is None else asdict(header.preprocessing),
    }
