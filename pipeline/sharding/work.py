"""What is to be encoded, and the two steps that do it: images to shards, shards to a store."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from fsnl.cache.arrays import F32, U64
from fsnl.cache.reader import FeatureStore
from fsnl.cache.schema import Json, StoreHeader
from fsnl.cache.shard_file import Shard
from fsnl.cache.shards import ShardFolder, ShardPlan
from fsnl.cache.writer import new_store
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.hygiene import hygiene_notes, watch
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.batches import batch_rows
from fsnl.pipeline.encoders.streaming import embedded_batches
from fsnl.pipeline.sharding.existing import check_same
from fsnl.pipeline.sharding.health import RowHealth

# Rows of a shard, unless a batch has more: what a crash may cost, against the number of files.
SHARD_ROWS = 512

Note = Callable[[str], None]
# Called with split, rows done and rows in all.
Progress = Callable[[str, int, int], None]


class EncoderSource(Protocol):
    """An encoder that is planned, and not loaded yet."""

    @property
    def header(self) -> StoreHeader:
        """Of a store of its embeddings; its environment is not known yet."""

    def load(self, device: str) -> tuple[Encoder, StoreHeader]:
        """The encoder on a device, and the header with the environment."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be encoded into which store.

    Attributes:
        path: the store.
        sets: the splits to encode.
        requests: per split, what was asked for.
        kept: splits that the store holds already and keeps.
        overwrite: whether the new file may replace one.
        force: whether it replaces whatever lies there.
        encoder: what encodes them.
        device: the user's word for it.
        batch_size: images per forward pass, None for the encoder's own.
        shard_rows: rows of a shard.
        workers: threads that decode.
        note: takes lines for the user.
        progress: told of rows done.
    """

    path: Path
    sets: Sequence[ImageSet]
    requests: Mapping[str, dict[str, Json]]
    kept: Sequence[str]
    overwrite: bool
    force: bool
    encoder: EncoderSource
    device: str
    batch_size: int | None
    shard_rows: int
    workers: int
    note: Note
    progress: Progress

    def beside(self, store: FeatureStore | None) -> "Work":
        """What is left to do where a store holds some of the splits: those are kept.

        Raises:
            MismatchError: the store is of something else.
        """
        if store is None:
            return self
        check_same(store, self.encoder.header, [image_set.listing for image_set in self.sets])
        sets = [image_set for image_set in self.sets if image_set.listing.split not in store.splits]
        return replace(self, sets=sets, kept=store.splits, overwrite=True)


def encode(
    work: Work,
    folder: ShardFolder,
    image_set: ImageSet,
    encoder: Encoder,
    *,
    plan: ShardPlan,
    shards: Sequence[Shard],
    rank: int,
) -> None:
    """Encode some shards of one split, each written when it is whole.

    Args:
        work: where progress goes, and how many threads decode.
        folder: where the shards go.
        image_set: the split.
        encoder: what encodes it.
        plan: its batch size is obeyed.
        shards: which ones, in row order.
        rank: number of this process.

    Raises:
        DatasetError: an image that cannot be decoded; the shards before it are there.
        WriteError: no space; likewise.
    """
    watched, odd = watch(image_set)
    parts = {shard: batch_rows(shard.rows, batch_size=plan.batch_size) for shard in shards}
    batches = [rows for of_shard in parts.values() for rows in of_shard]
    split, total = image_set.listing.split, len(image_set.listing.image_ids)
    done = total - sum(map(len, batches))

    def counted(encoded: Iterator[tuple[F32, U64]]) -> Iterator[tuple[F32, U64]]:
        nonlocal done
        for embeddings, digests in encoded:
            done += len(embeddings)
            work.progress(split, done, total)
            yield embeddings, digests

    stream = embedded_batches(watched, encoder, batches=batches, workers=work.workers)
    with contextlib.closing(stream):
        for shard, of_shard in parts.items():
            folder.write(shard, counted(islice(stream, len(of_shard))), rank=rank, remarks=lambda: list(odd))


def assemble(
    work: Work,
    folder: ShardFolder,
    header: StoreHeader,
    *,
    plan: ShardPlan,
    shards: Mapping[str, Sequence[Shard]],
) -> None:
    """Write the store from its shards and the splits it keeps, and say what is odd about the embeddings.

    Raises:
        DamagedShardError: a shard's bytes are not as they were written; nothing was replaced.
        OccupiedError, WriteError: something appeared at the store's place, or there is no space.
    """
    lines: list[str] = []
    with new_store(work.path, header, overwrite=work.overwrite, aside=folder.assembled) as store:
        for split in work.kept:
            store.copy_split(work.path, split)
        for image_set in work.sets:
            listing = image_set.listing
            of_split = shards[listing.split]
            health = RowHealth()
            batches = (
                batch for shard in of_split for batch in folder.read(shard, batch_size=plan.batch_size)
            )
            store.add_split(listing, health.seen(batches), request=work.requests[listing.split])
            lines += health.warnings(listing)
            odd = [row for shard in of_split for row in folder.remarks(shard)]
            lines += hygiene_notes(listing, digests=np.concatenate(health.digests), constant=odd)
    for line in lines:
        work.note(line)
