"""Which of several processes this one is, by the environment that `torchrun`, or another starter, sets."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fsnl.cache.errors import FsnlError


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a job.

    Attributes:
        rank: its number, 0 for the one that leads.
        world_size: how many there are.
        n_local: how many of them this host has.
        job: a name of the job that all of them know, and no other job at the same time.
    """

    rank: int = 0
    world_size: int = 1
    n_local: int = 1
    job: str = ""

    @property
    def leads(self) -> bool:
        return self.rank == 0


def this_rank(environ: Mapping[str, str] = os.environ) -> Rank:
    """The calling process, by RANK, WORLD_SIZE and LOCAL_WORLD_SIZE; alone where they are not set.

    Raises:
        FsnlError: they are not numbers that fit each other.

    >>> this_rank({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500"})
    Rank(rank=1, world_size=2, n_local=1, job='a:29500')
    """
    rank, world_size = environ.get("RANK"), environ.get("WORLD_SIZE")
    if rank is None or world_size is None:
        return Rank()
    try:
        found = Rank(
            int(rank), int(world_size), max(1, int(environ.get("LOCAL_WORLD_SIZE", 1))), _job(environ)
        )
    except ValueError:
        found = Rank(-1)
    if not 0 <= found.rank < found.world_size:
        msg = f"the environment has RANK={rank} and WORLD_SIZE={world_size}, needed 0 <= RANK < WORLD_SIZE"
        raise FsnlError(msg)
    return found


def _job(environ: Mapping[str, str]) -> str:
    """Where the job's processes meet: two jobs cannot listen there at the same time."""
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    return ":".join(environ[name] for name in names if name in environ)
