"""Prepared image batches, decoded ahead of the encoder by threads: Pillow decodes without the GIL."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Event

import numpy as np

from fsnl.cache.arrays import U8, U64
from fsnl.cache.fingerprint import image_digest
from fsnl.cache.schema import Preprocessing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.quiet import pillow_quiet
from fsnl.pipeline.encoders.preprocessing import check_preprocessing, prepare
from fsnl.pipeline.encoders.turns import Turns

# Images per task: enough to make the cost of a task small beside decoding even tiny images.
_TASK_IMAGES = 16

Batch = tuple[U8, U64]


def batch_rows(rows: range, *, batch_size: int) -> list[range]:
    """Cut rows into batches, the last one maybe shorter.

    >>> batch_rows(range(10, 15), batch_size=2)
    [range(10, 12), range(12, 14), range(14, 15)]

    Raises:
        ValueError: `batch_size` is less than 1.
    """
    if batch_size < 1:
        message = f"batch_size {batch_size} is less than 1"
        raise ValueError(message)
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


def check_batches(
    image_set: ImageSet, preprocessing: Preprocessing, *, batches: Sequence[Sequence[int]], workers: int
) -> None:
    """Refuse what cannot be decoded.

    Raises:
        ValueError: `workers`, `batches` or `preprocessing` out of range.
    """
    if workers < 0:
        message = f"workers {workers} is less than 0"
        raise ValueError(message)
    n_images = len(image_set.listing.labels)
    for rows in batches:
        if rows and not (0 <= min(rows) and max(rows) < n_images):
            split = image_set.listing.split
            reach = f"rows {min(rows)} to {max(rows)} reach outside"
            message = f"{reach} the {n_images} images of split {split!r}"
            raise ValueError(message)
    check_preprocessing(preprocessing)


def prepared_batches(
    image_set: ImageSet, preprocessing: Preprocessing, *, batches: Sequence[Sequence[int]], workers: int
) -> Generator[Batch, None, None]:
    """Decode and prepare the images of one split, in the order given.

    At most two batches, or two tasks for every thread, are decoded ahead: memory does not grow with the
    number of images. An image that cannot be decoded raises when its batch is due, always the first such
    row. Closing the generator, or any exception, ends the threads.

    Args:
        image_set: where the images come from.
        preprocessing: how they are resized and cropped.
        batches: the rows of each batch.
        workers: decoding threads; 0 decodes in the calling thread.

    Returns:
        Batches of (B, S, S, 3) uint8 with S = `preprocessing.crop`, each with the (B,) uint64 digests
        of the decoded images before any resize.

    Raises:
        ValueError: `workers`, `batches` or `preprocessing` out of range.
    """
    check_batches(image_set, preprocessing, batches=batches, workers=workers)
    if workers == 0:
        return _decoded_inline(image_set, preprocessing, batches=batches)
    return _decoded_ahead(image_set, preprocessing, batches=batches, workers=workers)


def decode_rows(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    *,
    rows: Sequence[int],
    turns: Turns,
    stopped: Callable[[], bool] = lambda: False,
) -> Batch:
    """Decode and prepare one batch in the calling thread, giving up between two images once `stopped`."""
    batch = _empty_batch(len(rows), preprocessing=preprocessing)
    _fill(batch, image_set, preprocessing, rows=rows, start=0, turns=turns, stopped=stopped)
    return batch


def _decoded_inline(
    image_set: ImageSet, preprocessing: Preprocessing, *, batches: Sequence[Sequence[int]]
) -> Generator[Batch, None, None]:
    turns = Turns(image_set)
    for rows in batches:
        yield decode_rows(image_set, preprocessing, rows=rows, turns=turns)


def _decoded_ahead(
    image_set: ImageSet, preprocessing: Preprocessing, *, batches: Sequence[Sequence[int]], workers: int
) -> Generator[Batch, None, None]:
    batch_size = max((len(rows) for rows in batches), default=1) or 1
    task_size = min(_TASK_IMAGES, batch_size)
    n_ahead = max(2, -(-2 * workers * task_size // batch_size))
    stop, turns = Event(), Turns(image_set)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fsnl-decode")

    def submit(batch_rows: Sequence[int]) -> tuple[Batch, list[Future[None]]]:
        batch = _empty_batch(len(batch_rows), preprocessing=preprocessing)
        tasks = [
            pool.submit(
                _fill,
                batch,
                image_set,
                preprocessing,
                rows=batch_rows[start : start + task_size],
                start=start,
                turns=turns,
                stopped=stop.is_set,
            )
            for start in range(0, len(batch_rows), task_size)
        ]
        return batch, tasks

    try:
        waiting = iter(batches)
        pending = deque(submit(rows) for rows in islice(waiting, n_ahead))
        while pending:
            batch, tasks = pending.popleft()
            pending.extend(submit(rows) for rows in islice(waiting, 1))
            for task in tasks:
                task.result()
            yield batch
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _empty_batch(n_images: int, *, preprocessing: Preprocessing) -> Batch:
    side = preprocessing.crop
    return np.empty((n_images, side, side, 3), np.uint8), np.empty(n_images, np.uint64)


def _fill(
    batch: Batch,
    image_set: ImageSet,
    preprocessing: Preprocessing,
    *,
    rows: Sequence[int],
    start: int,
    turns: Turns,
    stopped: Callable[[], bool],
) -> None:
    """Decode `rows` into `batch` from position `start` on, until `stopped`."""
    images, digests = batch
    with turns.turn(), pillow_quiet():  # once for all rows: to do so for each takes a twentieth of the time
        for position, row in enumerate(rows, start):
            if stopped():
                return
            image = image_set.image(row)
            digests[position] = image_digest(image)
            images[position] = prepare(image, preprocessing=preprocessing)
