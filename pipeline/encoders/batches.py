"""Prepared image batches, decoded ahead of the encoder by threads: Pillow decodes without the GIL."""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import numpy as np

from fsnl.cache.arrays import U8, U64
from fsnl.cache.fingerprint import image_digest
from fsnl.cache.schema import Preprocessing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.encoders.preprocessing import check_preprocessing, prepare

# Images per task: enough to make the cost of a task small beside decoding even tiny images.
_TASK_IMAGES = 16

Batch = tuple[U8, U64]


def prepared_batches(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    workers: int,
    rows: range | None = None,
) -> Generator[Batch, None, None]:
    """Decode and prepare the images of one split, in row order.

    At most two batches, or two tasks for every thread, are decoded ahead: memory does not grow with the
    number of images. An image that cannot be decoded raises when its batch is due, always the first such
    row. Closing the generator, or any exception, ends the threads.

    Args:
        image_set: where the images come from.
        preprocessing: how they are resized and cropped.
        batch_size: B, images per batch; the last batch may be shorter.
        workers: decoding threads; 0 decodes in the calling thread.
        rows: the rows to take, all of them where None.

    Returns:
        Batches of (B, S, S, 3) uint8 with S = `preprocessing.crop`, each with the (B,) uint64 digests
        of the decoded images before any resize.

    Raises:
        ValueError: `batch_size`, `workers`, `rows` or `preprocessing` out of range.
    """
    n_images = len(image_set.listing.labels)
    rows = range(n_images) if rows is None else rows
    if batch_size < 1 or workers < 0:
        message = f"batch_size {batch_size} and workers {workers} must be at least 1 and 0"
        raise ValueError(message)
    if rows and not (0 <= min(rows) and max(rows) < n_images):
        message = f"rows {rows} reach outside the {n_images} images of split {image_set.listing.split!r}"
        raise ValueError(message)
    check_preprocessing(preprocessing)
    batches = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    if workers == 0:
        return _decoded_inline(image_set, preprocessing, batches=batches)
    return _decoded_ahead(image_set, preprocessing, batches=batches, batch_size=batch_size, workers=workers)


def _decoded_inline(
    image_set: ImageSet, preprocessing: Preprocessing, *, batches: list[range]
) -> Generator[Batch, None, None]:
    for batch_rows in batches:
        batch = _empty_batch(len(batch_rows), preprocessing=preprocessing)
        _fill(batch, image_set, preprocessing, rows=batch_rows, start=0, stopped=Event().is_set)
        yield batch


def _decoded_ahead(
    image_set: ImageSet,
    preprocessing: Preprocessing,
    *,
    batches: list[range],
    batch_size: int,
    workers: int,
) -> Generator[Batch, None, None]:
    task_size = min(_TASK_IMAGES, batch_size)
    n_ahead = max(2, -(-2 * workers * task_size // batch_size))
    stop = Event()
    pending: deque[tuple[Batch, list[Future[None]]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="fsnl-decode")

    def submit(batch_rows: range) -> None:
        batch = _empty_batch(len(batch_rows), preprocessing=preprocessing)
        tasks = [
            pool.submit(
                _fill,
                batch,
                image_set,
                preprocessing,
                rows=batch_rows[start : start + task_size],
                start=start,
                stopped=stop.is_set,
            )
            for start in range(0, len(batch_rows), task_size)
        ]
        pending.append((batch, tasks))

    def next_batch() -> Batch:
        batch, tasks = pending.popleft()
        for task in tasks:
            task.result()
        return batch

    try:
        for batch_rows in batches:
            submit(batch_rows)
            if len(pending) > n_ahead:
                yield next_batch()
        while pending:
            yield next_batch()
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
    rows: range,
    start: int,
    stopped: Callable[[], bool],
) -> None:
    """Decode `rows` into `batch` from position `start` on, until `stopped`."""
    images, digests = batch
    for position, row in enumerate(rows, start):
        if stopped():
            return
        image = image_set.image(row)
        digests[position] = image_digest(image)
        images[position] = prepare(image, preprocessing=preprocessing)
