"""Images to embeddings at the speed of the network: decoding and encoding overlap.

On a CPU each thread decodes a batch and encodes it on one core. Networks that spread one batch over all
cores wait for one another after every layer, and spin meanwhile: beside decoding threads, or any other
program, that took two to five times the processor time. On a GPU threads decode ahead, and a batch is sent
off before the embeddings of the one before it are fetched.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from threading import Event

from fsnl.cache.arrays import F32, U8, U64
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.batches import check_batches, decode_rows, prepared_batches
from fsnl.pipeline.encoders.turns import Turns

# Batches beyond those in work, so that no thread waits while the caller writes.
_SPARE = 2


def embedded_batches(
    image_set: ImageSet, encoder: Encoder, *, batches: Sequence[range], workers: int
) -> Generator[tuple[F32, U64], None, None]:
    """Decode, prepare and encode images, batch by batch, in the order given.

    Results depend on the batches alone, not on `workers`. Memory does not grow with their number. An image
    that cannot be decoded raises when its batch is due. Closing the generator, or any exception, ends the
    threads.

    Args:
        image_set: where the images come from.
        encoder: what turns them into embeddings.
        batches: the rows of each batch.
        workers: threads; 0 does everything in the calling thread.

    Returns:
        For each batch (B, D) float32 embeddings and the (B,) uint64 digests of the decoded images.

    Raises:
        ValueError: `workers` or rows out of range.
    """
    check_batches(image_set, encoder.preprocessing, batches=batches, workers=workers)
    if encoder.start is not None:
        return _encoded_on_device(image_set, encoder, encoder.start, batches=batches, workers=workers)
    if workers == 0:
        return _encoded_inline(image_set, encoder, batches=batches)
    return _encoded_by_threads(image_set, encoder, batches=batches, workers=workers)


def _encoded_inline(
    image_set: ImageSet, encoder: Encoder, *, batches: Sequence[range]
) -> Generator[tuple[F32, U64], None, None]:
    turns = Turns(image_set)
    with encoder.threads():
        for rows in batches:
            yield _encoded(image_set, encoder, rows, turns=turns, stopped=lambda: False)


def _encoded(
    image_set: ImageSet, encoder: Encoder, rows: range, *, turns: Turns, stopped: Callable[[], bool]
) -> tuple[F32, U64]:
    images, digests = decode_rows(image_set, encoder.preprocessing, rows=rows, turns=turns, stopped=stopped)
    if stopped():
        raise CancelledError  # nobody asks for this batch any more
    return encoder.encode(images), digests


def _encoded_by_threads(
    image_set: ImageSet, encoder: Encoder, *, batches: Sequence[range], workers: int
) -> Generator[tuple[F32, U64], None, None]:
    stop = Event()
    pending: deque[Future[tuple[F32, U64]]] = deque()
    encoded = partial(_encoded, image_set, encoder, turns=Turns(image_set), stopped=stop.is_set)
    with encoder.threads():
        pool = ThreadPoolExecutor(workers, thread_name_prefix="fsnl-encode")
        try:
            waiting = iter(batches)
            pending.extend(pool.submit(encoded, rows) for rows in islice(waiting, workers + _SPARE))
            while pending:
                result = pending.popleft().result()
                pending.extend(pool.submit(encoded, rows) for rows in islice(waiting, 1))
                yield result
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _encoded_on_device(
    image_set: ImageSet,
    encoder: Encoder,
    start: Callable[[U8], Callable[[], F32]],
    *,
    batches: Sequence[range],
    workers: int,
) -> Generator[tuple[F32, U64], None, None]:
    """One batch is in work on the device while the next is decoded, sent, and the last one fetched."""
    running: tuple[Callable[[], F32], U64] | None = None
    for images, digests in prepared_batches(
        image_set, encoder.preprocessing, batches=batches, workers=workers
    ):
        started = (start(images), digests)
        if running is not None:
            yield running[0](), running[1]
        running = started
    if running is not None:
        yield running[0](), running[1]
