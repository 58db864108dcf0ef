"""A program: `slow_extract.py ROOT OUT SECONDS [NETWORK]`, extraction that takes its time over every batch.

It says `encoding` and `assembling` on standard output when it begins to. With `FAIL_RANK` in the environment,
that rank kills itself in the middle of its first shard.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from fsnl.cache.shards import ShardFolder
from fsnl.pipeline.extract import ExtractRequest, Running, extract
from fsnl.pipeline.sharding import run, work

T = TypeVar("T")


def slowed(function: Callable[..., Iterator[T]], seconds: float, *, word: str) -> Callable[..., Iterator[T]]:
    """A generator that says so when it begins, and waits after each item."""
    said = False

    def generator(*arguments: object, **options: object) -> Iterator[T]:
        nonlocal said
        if not said:
            print(word, flush=True)
            said = True
        for i, item in enumerate(function(*arguments, **options)):
            if (
                i == 1
                and word == "encoding"
                and os.environ.get("FAIL_RANK") == os.environ.get("RANK", "none")
            ):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(seconds)
            yield item

    return generator


def main() -> None:
    root, out, seconds, *network = sys.argv[1:]
    for name, word, owner in (("embedded_batches", "encoding", work), ("read", "assembling", ShardFolder)):
        setattr(owner, name, slowed(getattr(owner, name), float(seconds), word=word))
    run.POLL_SECONDS = 0.01
    request = ExtractRequest(dataset="folder", root=Path(root), encoder="pixels")
    if network:
        request = replace(request, encoder=network[0], weights="random:0", image_size=32)
    running = Running(batch_size=2, shard_rows=4, workers=0)
    extract(request, out=Path(out), running=running, note=lambda text: print(text, flush=True))


if __name__ == "__main__":
    main()
