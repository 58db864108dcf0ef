"""What a process of a training has to itself while it runs: cores, and the right to write the checkpoint."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from fsnl.cache.holder import held, this_process
from fsnl.cache.whole_file import remove_leftovers
from fsnl.pipeline.sharding.ranks import Rank


@contextlib.contextmanager
def computing_threads(n_threads: int, *, device: torch.device) -> Iterator[None]:
    """On a CPU torch computes in so many threads while the block runs; the number before is put back."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def writing_alone(out: Path, rank: Rank, *, take_over: bool) -> Iterator[None]:
    """Nobody else writes the checkpoint while the block runs; of several processes the first sees to it.

    Raises:
        HeldError: another run is writing it.
        WriteError: the lock cannot be made.
    """
    if not rank.leads:
        yield
        return
    name = out.name
    if len(os.fsencode(name)) > 240:  # a file's name may have 255 bytes
        name = f"{name[:50]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    lock = out.with_name(f".{name}.lock")
    with held(lock, this_process(job=rank.job), target=out, take_over=take_over):
        remove_leftovers(out)
        yield
