"""What rank 0 does, and what the others do."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fsnl.cache.errors import FsnlError
from fsnl.cache.holder import held, read_holder, this_process
from fsnl.cache.shard_file import DamagedShardError, Shard
from fsnl.cache.shards import ShardFolder, ShardPlan, shard_folder, split_shards
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.sharding.existing import existing_store, is_complete
from fsnl.pipeline.sharding.plan import check_plan, settle
from fsnl.pipeline.sharding.ranks import Rank
from fsnl.pipeline.sharding.signs import START_SECONDS, RankWatch, sign_of_life
from fsnl.pipeline.sharding.work import Work, assemble, encode

POLL_SECONDS = 0.05


@contextlib.contextmanager
def held_folder(path: Path, rank: Rank, *, take_over: bool) -> Iterator[ShardFolder]:
    """The folder of a store's shards, held by this process alone; gone afterwards unless shards are in it.

    Raises:
        HeldError: another run holds it.
        WriteError: it cannot be made.
    """
    folder = shard_folder(path)
    folder.make()
    try:
        with held(folder.lock, this_process(job=rank.job), target=path, take_over=take_over):
            try:
                yield folder
            finally:
                if not folder.has_shards():
                    folder.clear()
    finally:
        folder.remove_if_empty()


def lead(work: Work, folder: ShardFolder, rank: Rank) -> None:
    """Settle the plan, encode this rank's shards, wait for the others' and assemble the store.

    Args:
        work: what is to be done.
        folder: of the shards; held. It is empty afterwards.
        rank: this process.

    Raises:
        MismatchError: the folder holds shards of something else.
        FsnlError: an image that cannot be decoded, no space, a rank that went silent, a shard that is damaged
            again when it was encoded again.
    """
    encoder, header, plan = settle(work, folder, job=rank.job)
    shards = {s.listing.split: split_shards(plan, s.listing) for s in work.sets}
    every = [shard for of_split in shards.values() for shard in of_split]
    _say_found(work, folder, every)
    for image_set in work.sets:
        of_split = shards[image_set.listing.split]
        began, missing = time.monotonic(), folder.missing(of_split)
        own = _own(missing, every, rank)
        encode(work, folder, image_set, encoder, plan=plan, shards=own, rank=rank.rank)
        _await_shards(work, folder, image_set, missing, every=every, rank=rank)
        _say_speed(work, image_set, missing, seconds=time.monotonic() - began)
    replaced: set[Shard] = set()
    while True:
        try:
            assemble(work, folder, header, plan=plan, shards=shards)
            break
        except DamagedShardError as error:  # known only when all its bytes are read
            if error.shard in replaced:
                raise
            replaced.add(error.shard)
            work.note(f"warning: {error}; encoding it again")
            folder.discard(error.shard)
        for image_set in work.sets:
            missing = folder.missing(shards[image_set.listing.split])
            encode(work, folder, image_set, encoder, plan=plan, shards=missing, rank=rank.rank)
    folder.clear()


def follow(work: Work, rank: Rank) -> None:
    """Encode this rank's shards, once rank 0 has settled how; return at once where the store is whole.

    Args:
        work: what is to be done, as rank 0 has it.
        rank: this process.

    Raises:
        FsnlError: rank 0 does not come, or has another plan; else as `lead`.
    """
    folder = shard_folder(work.path)
    whole = _completion(work)
    done: ShardPlan | None = None
    if not _await_leader(folder, rank, whole=whole):
        return
    before = folder.read_plan()
    encoder, header = work.encoder.load(before.device if before and work.device == "auto" else work.device)
    while (plan := _await_plan(folder, rank, whole=whole)) not in (None, done):
        done = plan  # once more, should rank 0 settle anew: what lay there may have been of an earlier job
        assert plan is not None
        check_plan(plan, folder, header, device=encoder.device)
        shards = {s.listing.split: split_shards(plan, s.listing) for s in work.sets}
        every = [shard for of_split in shards.values() for shard in of_split]
        with sign_of_life(folder, rank):
            for image_set in work.sets:
                own = _own(folder.missing(shards[image_set.listing.split]), every, rank)
                encode(work, folder, image_set, encoder, plan=plan, shards=own, rank=rank.rank)


def _completion(work: Work) -> Callable[[], bool]:
    """Asks whether the store is whole: if one is to be replaced, whether another lies there by now."""

    def state() -> tuple[int, int] | None:
        try:
            found = work.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    before = state()
    return lambda: (
        not (work.force and state() == before) and is_complete(existing_store(work.path), work.requests)
    )


def _own(missing: Sequence[Shard], every: Sequence[Shard], rank: Rank) -> list[Shard]:
    """Those of the missing shards that this rank encodes."""
    mine = set(every[rank.rank :: rank.world_size])
    return [shard for shard in missing if shard in mine]


def _await_shards(
    work: Work,
    folder: ShardFolder,
    image_set: ImageSet,
    shards: Sequence[Shard],
    *,
    every: Sequence[Shard],
    rank: Rank,
) -> None:
    """Wait until the other ranks have written theirs."""
    owners = {shard: i % rank.world_size for i, shard in enumerate(every)}
    watch, total = RankWatch(folder), len(image_set.listing.image_ids)
    while missing := folder.missing(shards):
        watch.check({owners[shard] for shard in missing}, n_missing=len(missing))
        n_missing = sum(len(shard.rows) for shard in missing)
        work.progress(image_set.listing.split, total - n_missing, total)
        time.sleep(POLL_SECONDS)


def _await_leader(folder: ShardFolder, rank: Rank, *, whole: Callable[[], bool]) -> bool:
    """Wait until rank 0 of this job holds the folder; False where the store is whole."""
    began = time.monotonic()
    while True:
        if whole():
            return False
        holder = read_holder(folder.lock)
        if holder is not None and holder.job == rank.job:
            return True
        if time.monotonic() - began > START_SECONDS:
            msg = (
                f"rank {rank.rank} has waited for {START_SECONDS:.0f} s for rank 0 to begin in {folder.path}"
            )
            raise FsnlError(msg)
        time.sleep(POLL_SECONDS)


def _await_plan(folder: ShardFolder, rank: Rank, *, whole: Callable[[], bool]) -> ShardPlan | None:
    """The plan that rank 0 of this job has settled; None where the store is whole, or rank 0 is gone."""
    while True:
        plan = folder.read_plan()
        if plan is not None and plan.job == rank.job:
            return plan
        if not _await_leader(folder, rank, whole=whole):
            return None
        time.sleep(POLL_SECONDS)


def _say_found(work: Work, folder: ShardFolder, shards: Sequence[Shard]) -> None:
    missing = folder.missing(shards)
    if len(missing) < len(shards):
        n_images = sum(len(shard.rows) for shard in shards)
        n_found = n_images - sum(len(shard.rows) for shard in missing)
        n_whole = len(shards) - len(missing)
        work.note(f"resuming: {n_whole} of {len(shards)} shards found, {n_found:,} of {n_images:,} images")


def _say_speed(work: Work, image_set: ImageSet, shards: Sequence[Shard], *, seconds: float) -> None:
    n_images = sum(len(shard.rows) for shard in shards)
    if n_images:
        rate = n_images / max(seconds, 1e-9)
        split = image_set.listing.split
        work.note(f"{split}: {n_images:,} images in {seconds:.1f} s, {rate:,.0f} images/s")
