"""Shards: the rows of a store in the making, in files beside it, each whole or not there.

A shard is a run of rows of one split. Its name is a digest of all that decides its embeddings: encoder and
preprocessing, the ids and source sizes of its images, the sizes of its batches, the kind of device. So a
shard that is there by its name can be used, whoever made it and whenever, and one of other images or of
another encoder is never found. What is chosen once for all shards lies beside them in `plan.json`.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from fsnl.cache.arrays import F32, U64
from fsnl.cache.errors import WriteError
from fsnl.cache.fingerprint import arrays_sha256, canonical_json
from fsnl.cache.schema import Json, Listing
from fsnl.cache.shard_file import (
    DamagedShardError,
    Shard,
    ShardRecord,
    read_record,
    read_shard,
    write_shard,
)

PLAN_VERSION = 1


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """What all shards of one store have in common, chosen once and obeyed by every process and resumption.

    Attributes:
        header: `fsnl.cache.fingerprint.header_identity` of the store; shards of another are not mixed in.
        batch_size: images per forward pass.
        rows_per_shard: a multiple of it.
        device: kind of device, `cpu`, `cuda` or `mps`.
        environment: of the process that began, see `StoreHeader`.
        replaces: whether the store is to replace what lies at its place.
        job: of the processes at work now; empty while their first one is still preparing.
    """

    header: Mapping[str, Json]
    batch_size: int
    rows_per_shard: int
    device: str
    environment: Mapping[str, str | int | None]
    replaces: bool
    job: str


def split_shards(plan: ShardPlan, listing: Listing) -> list[Shard]:
    """The shards of one split, in row order; the last may have fewer rows."""
    shards = []
    n_rows = len(listing.image_ids)
    for first in range(0, n_rows, plan.rows_per_shard):
        rows = range(first, min(first + plan.rows_per_shard, n_rows))
        identity: Json = {
            **plan.header,
            "split": listing.split,
            "classes": [listing.class_names[label] for label in listing.labels[first : rows.stop]],
            "image_ids": list(listing.image_ids[first : rows.stop]),
            "source_sizes_sha256": arrays_sha256((listing.source_sizes[first : rows.stop],)),
            "batch_size": plan.batch_size,
            "device": plan.device,
        }
        name = hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:32]
        shards.append(Shard(name=name, rows=rows))
    return shards


@dataclass(frozen=True, slots=True)
class ShardFolder:
    """The folder of one store's shards.

    Attributes:
        path: the folder.
        store: what is made of the shards; errors are about it.
    """

    path: Path
    store: Path

    @property
    def lock(self) -> Path:
        """What the one run holds that may write here."""
        return self.path / "lock"

    @property
    def assembled(self) -> Path:
        """Where the store is put together."""
        return self.path / "assembled.part"

    def rank_file(self, rank: int) -> Path:
        """Where a process other than the first gives signs of life."""
        return self.path / f"rank-{rank}"

    def make(self) -> None:
        """Make the folder where it is not there yet.

        Raises:
            WriteError: no permission, no space, something else there.
        """
        with self._errors():
            try:
                self.path.mkdir(exist_ok=True)
            except FileExistsError as error:
                reason = f"{self.path} is no folder, and its shards need one of that name; move it away"
                raise WriteError(self.store, reason) from error

    def read_plan(self) -> ShardPlan | None:
        """The plan; None where there is none, or one of another version, which no shard here is for."""
        try:
            data = json.loads((self.path / "plan.json").read_text(encoding="utf-8"))
            version = data.pop("version")
            return ShardPlan(**data) if version == PLAN_VERSION else None
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return None

    def write_plan(self, plan: ShardPlan) -> None:
        """Put a plan in the place of the one that was there, if any, at once."""
        text = json.dumps({"version": PLAN_VERSION, **asdict(plan)}, indent=1)
        aside = self.path / "plan.json.part"
        with self._errors():
            aside.write_text(text, encoding="utf-8")
            aside.replace(self.path / "plan.json")

    def missing(self, shards: Sequence[Shard]) -> list[Shard]:
        """Those of the shards that are not there; their bytes are looked at when they are read."""
        try:
            there = {path.name for path in self.path.iterdir()}
        except FileNotFoundError:
            return list(shards)
        return [shard for shard in shards if f"{shard.name}.shard" not in there]

    def write(
        self,
        shard: Shard,
        batches: Iterable[tuple[F32, U64]],
        *,
        rank: int = 0,
        remarks: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        """Write one shard, aside and renamed.

        Args:
            shard: which one.
            batches: (B, D) float32 embeddings and (B,) uint64 digests, in row order, all its rows.
            rank: of the calling process among those at work; no two write the same shard at once.
            remarks: asked for after the last batch: rows of the split to be remarked on.

        Raises:
            WriteError: no space.
            ValueError: the batches do not add up.
        """
        final = self.path / f"{shard.name}.shard"
        aside = self.path / f"{shard.name}.{rank}.part"
        try:
            with self._errors(), aside.open("wb") as file:
                write_shard(file, shard, batches, remarks=remarks)
            with self._errors():
                aside.replace(final)
        finally:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)

    def read(self, shard: Shard, *, batch_size: int) -> Iterator[tuple[F32, U64]]:
        """Batches of one shard as they were given to `write`, but for their sizes.

        Raises:
            DamagedShardError: its bytes are not as they were written; known for sure after the last batch.
        """
        with self._opened(shard) as (file, record):
            yield from read_shard(file, record, batch_size=batch_size)

    def remarks(self, shard: Shard) -> list[int]:
        """Rows of the split that were remarked on, ascending.

        Raises:
            DamagedShardError: likewise.
        """
        with self._opened(shard) as (_, record):
            return [shard.rows.start + row for row in record.remarks]

    @contextlib.contextmanager
    def _opened(self, shard: Shard) -> "Iterator[tuple[BinaryIO, ShardRecord]]":
        path = self.path / f"{shard.name}.shard"
        try:
            with path.open("rb") as file:
                yield file, read_record(file, shard)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedShardError(path, f"damaged shard: {error}", shard) from error

    def has_shards(self) -> bool:
        """Whether there is anything to resume from."""
        return any(path.suffix == ".shard" for path in self.path.iterdir())

    def discard(self, shard: Shard) -> None:
        """Remove one shard."""
        (self.path / f"{shard.name}.shard").unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all but the lock."""
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != self.lock:
                path.unlink(missing_ok=True)

    def remove_if_empty(self) -> None:
        """Remove the folder where nothing is left in it."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WriteError(self.store, f"could not be written: {error.strerror or error}") from error


def shard_folder(store: Path) -> ShardFolder:
    """The folder of the shards of a store: beside it, and named after it."""
    name = store.name
    if len(os.fsencode(name)) > 240:  # a file's name may have 255 bytes
        name = f"{name[:50]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    return ShardFolder(store.with_name(f"{name}.shards"), store)
