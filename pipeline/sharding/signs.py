"""Signs of life of the other ranks, in the folder of shards."""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict

from fsnl.cache.errors import FsnlError
from fsnl.cache.holder import beating, read_holder, this_process
from fsnl.cache.shards import ShardFolder
from fsnl.pipeline.sharding.ranks import Rank

# After how long a rank counts as dead: one that was seen, and one that was not yet (it may be listing many
# images, or loading a large network). `torchrun` ends a job whose rank died much sooner than that.
SILENT_SECONDS = 120.0
START_SECONDS = 1800.0


@contextlib.contextmanager
def sign_of_life(folder: ShardFolder, rank: Rank) -> Iterator[None]:
    """Give signs of life while the block runs."""
    path = folder.rank_file(rank.rank)
    with contextlib.suppress(OSError):  # a full disk is noticed soon enough
        path.write_text(json.dumps(asdict(this_process(job=rank.job))), encoding="utf-8")
    try:
        with beating(path):
            yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


class RankWatch:
    """Notices ranks that went silent, by the change of their files' times: clocks of hosts may differ."""

    def __init__(self, folder: ShardFolder) -> None:
        self._folder = folder
        self._began = time.monotonic()
        # By rank: the last time of change, and when it was first seen.
        self._seen: dict[int, tuple[int, float]] = {}

    def check(self, ranks: set[int], *, n_missing: int) -> None:
        """Look at the ranks whose shards are missing.

        Raises:
            FsnlError: one has been silent for too long.
        """
        now = time.monotonic()
        for rank in sorted(ranks):
            path = self._folder.rank_file(rank)
            with contextlib.suppress(OSError):
                changed = path.stat().st_mtime_ns
                if self._seen.get(rank, (0, now))[0] != changed:
                    self._seen[rank] = (changed, now)
            since, limit = (
                (self._seen[rank][1], SILENT_SECONDS) if rank in self._seen else (self._began, START_SECONDS)
            )
            if now - since > limit:
                holder = read_holder(path)
                who = f" (process {holder.pid} on {holder.host})" if holder else ""
                silence = f"has given no sign of life for {now - since:.0f} s"
                advice = "run the same command again to go on"
                msg = f"rank {rank}{who} {silence}; {n_missing} shards are missing: {advice}"
                raise FsnlError(msg)
