"""One shard: embeddings and digests of a run of rows, with a checksum, in a file.

A shard file holds the (n, D) embeddings as float32 and the (n,) image digests as uint64, little-endian, in
C order, then a JSON text, its length in 8 bytes, and 8 bytes that mark the end. The text has `name`,
`n_rows`, `dim`, `remarks`, and `sha256` over all bytes before it. None of this is for other programs.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fsnl.cache.arrays import F32, U64
from fsnl.cache.errors import FormatError
from fsnl.cache.fingerprint import canonical_json
from fsnl.cache.schema import Json

END = b"fsnlshrd"


@dataclass(frozen=True, slots=True)
class Shard:
    """One run of rows.

    Attributes:
        name: hex digest of what decides its embeddings.
        rows: of its split.
    """

    name: str
    rows: range


class DamagedShardError(FormatError):
    """A shard whose bytes are not as they were written."""

    def __init__(self, path: Path, reason: str, shard: Shard) -> None:
        super().__init__(path, reason)
        self.shard = shard


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """The text at a shard's end."""

    name: str
    n_rows: int
    dim: int
    remarks: list[int]
    sha256: str


def write_shard(
    file: BinaryIO,
    shard: Shard,
    batches: Iterable[tuple[F32, U64]],
    *,
    remarks: Callable[[], Sequence[int]],
) -> None:
    """Write a shard; see `ShardFolder.write`."""
    checksum = hashlib.sha256()
    digests: list[U64] = []
    dim = n_rows = 0
    for batch, of_images in batches:
        data = np.ascontiguousarray(batch, dtype="<f4").tobytes()
        checksum.update(data)
        file.write(data)
        digests.append(of_images)
        n_rows, dim = n_rows + len(batch), batch.shape[1]
    if n_rows != len(shard.rows):
        msg = f"the batches hold {n_rows} rows, the shard {len(shard.rows)}"
        raise ValueError(msg)
    data = np.concatenate(digests).astype("<u8").tobytes()
    checksum.update(data)
    file.write(data)
    record: Json = {
        "name": shard.name,
        "n_rows": n_rows,
        "dim": dim,
        "remarks": [row - shard.rows.start for row in sorted(set(remarks())) if row in shard.rows],
        "sha256": checksum.hexdigest(),
    }
    text = canonical_json(record).encode()
    file.write(text + len(text).to_bytes(8, "little") + END)


def read_record(file: BinaryIO, shard: Shard) -> ShardRecord:
    """The text at the end, held against the file's size.

    Raises:
        ValueError, KeyError, TypeError: this is no whole file of that shard.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 16))
    length, end = int.from_bytes(file.read(8), "little"), file.read(8)
    if end != END or length > size - 16:
        msg = "it was not written to its end"
        raise ValueError(msg)
    file.seek(size - 16 - length)
    record = ShardRecord(**json.loads(file.read(length)))
    n_bytes = record.n_rows * (record.dim * 4 + 8)
    if (record.name, record.n_rows, n_bytes) != (shard.name, len(shard.rows), size - 16 - length):
        msg = "it is another one, or of another size"
        raise ValueError(msg)
    return record


def read_shard(file: BinaryIO, record: ShardRecord, *, batch_size: int) -> Iterator[tuple[F32, U64]]:
    """Batches of (B, D) float32 embeddings and (B,) uint64 digests.

    Raises:
        ValueError: the checksum differs, known after the last batch.
    """
    checksum = hashlib.sha256()
    file.seek(record.n_rows * record.dim * 4)
    digests = np.frombuffer(file.read(record.n_rows * 8), dtype="<u8")
    file.seek(0)
    for first in range(0, record.n_rows, batch_size):
        of_images = digests[first : first + batch_size]
        data = file.read(len(of_images) * record.dim * 4)
        checksum.update(data)
        yield np.frombuffer(data, dtype="<f4").reshape(-1, record.dim), of_images
    checksum.update(digests.tobytes())
    if checksum.hexdigest() != record.sha256:
        msg = "its bytes are not as they were written"
        raise ValueError(msg)
