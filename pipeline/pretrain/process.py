"""What a process of a training computes with, and has to itself: cores, the right to write the checkpoint."""

import contextlib
import hashlib
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch

from fsnl.cache.holder import held, this_process
from fsnl.cache.whole_file import remove_leftovers
from fsnl.pipeline.encoders.network import exact_float32
from fsnl.pipeline.sharding.ranks import Rank


@contextlib.contextmanager
def computing(*, n_threads: int, device: torch.device) -> Iterator[None]:
    """While the block runs torch computes in so many threads on a CPU, and float32 as float32 on a GPU."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(n_threads)
    try:
        with exact_float32(device):
            yield
    finally:
        torch.set_num_threads(before)


def environment(device: torch.device, *, world_size: int) -> dict[str, str]:
    """What only colours the last digits of the weights."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: metadata.version(name) for name in ("fsnl", "numpy", "torch", "torchvision")},
        "device": str(device),
        "threads": str(torch.get_num_threads()),
        "processes": str(world_size),
    }


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
