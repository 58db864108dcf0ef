"""Whose turn it is to decode: for small images one thread at a time is faster than several at once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from fsnl.pipeline.datasets.base import ImageSet

# Bytes of an image's source, on average. A PNG of 32 px has 2,200: one thread decoded 12,000 in a second, two
# 7,000. A JPEG of 84 px has 4,100, and there two were a fifth faster than one.
SMALL_SOURCE = 3 << 10
# Times the work that a thread may wait for its images before all go at once.
_MOST_WAITING = 3.0


class Turns:
    """Turns of the threads that decode one image set.

    To decode a small image is mostly Python, which one thread runs at a time anyway: two threads that took it
    from each other at every call of Pillow were half as fast as one. There are no turns where the images are
    large, and where they are what is waited for, as on a disk behind a network.

    Args:
        image_set: whose images.
    """

    def __init__(self, image_set: ImageSet) -> None:
        sizes = image_set.listing.source_sizes
        self._lock = Lock() if sizes.size and sizes.mean() <= SMALL_SOURCE else None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Decode inside."""
        lock = self._lock
        if lock is None:
            yield
            return
        with lock:
            began, began_work = time.perf_counter(), time.thread_time()
            yield
            worked = time.thread_time() - began_work
            waited = time.perf_counter() - began - worked
        if waited > _MOST_WAITING * worked:
            self._lock = None
