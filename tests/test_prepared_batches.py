"""Batches decoded ahead by threads: order, bounds, errors, and threads that end."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fsnl.cache.arrays import U8
from fsnl.cache.errors import DatasetError
from fsnl.cache.fingerprint import image_digest
from fsnl.cache.schema import DatasetInfo, Listing, Preprocessing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.encoders.batches import batch_rows, prepared_batches
from fsnl.pipeline.encoders.preprocessing import prepare

PREPROCESSING = Preprocessing(6, 4, "bilinear", True, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def picture(row: int) -> U8:
    return np.random.default_rng(row).integers(0, 256, (5 + row % 3, 7, 3), np.uint8)


def image_set(n_images: int, *, image: Callable[[int], U8] = picture, n_bytes: int = 0) -> ImageSet:
    listing = Listing(
        split="test",
        class_names=("a",),
        labels=np.zeros(n_images, np.int64),
        image_ids=tuple(str(row) for row in range(n_images)),
        source_sizes=np.full(n_images, n_bytes, np.int64),
    )
    return ImageSet(
        info=DatasetInfo("folder", None),
        listing=listing,
        image=image,
        size=lambda row: (5 + row % 3, 7),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        found="",
    )


def decoding_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("fsnl-decode")]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("batch_size", [1, 20, 100])
def test_every_row_comes_once_and_in_order(batch_size: int, workers: int) -> None:
    images = image_set(67)
    cut = batch_rows(range(67), batch_size=batch_size)
    batches = list(prepared_batches(images, PREPROCESSING, batches=cut, workers=workers))
    sizes = [batch_size] * (67 // batch_size) + [67 % batch_size] * (67 % batch_size > 0)
    assert [len(batch) for batch, _ in batches] == sizes
    made, digests = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert digests.dtype == np.uint64
    assert digests.tolist() == [image_digest(picture(row)) for row in range(67)]
    wanted = np.stack([prepare(picture(row), preprocessing=PREPROCESSING) for row in range(67)])
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("workers", [0, 2])
def test_any_batches_may_be_taken_in_any_order(workers: int) -> None:
    taken = [range(10, 14), range(2, 3), range(0), range(14, 16)]
    batches = prepared_batches(image_set(30), PREPROCESSING, batches=taken, workers=workers)
    digests = [part.tolist() for _, part in batches]
    assert digests == [[image_digest(picture(row)) for row in rows] for rows in taken]


def test_no_images_give_no_batches() -> None:
    assert not list(prepared_batches(image_set(0), PREPROCESSING, batches=[], workers=2))


def test_decoding_runs_ahead_but_not_far() -> None:
    decoded = []

    def image(row: int) -> U8:
        decoded.append(row)
        return picture(row)

    cut = batch_rows(range(2000), batch_size=20)
    batches = prepared_batches(image_set(2000, image=image), PREPROCESSING, batches=cut, workers=2)
    for n_taken, _ in enumerate(batches, 1):
        # 2 threads with 2 tasks of 16 images each are 64 images: 4 batches ahead of the one taken
        assert 20 * n_taken <= len(decoded) <= 20 * (n_taken + 4)


class Crowd:
    """Images that take a while, and the most threads that were at one at the same time."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits
        self.most = self._inside = 0
        self._lock = threading.Lock()

    def image(self, row: int) -> U8:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        if self.waits:
            time.sleep(0.005)
        else:
            began = time.thread_time()
            while time.thread_time() - began < 0.002:
                picture(row)
        with self._lock:
            self._inside -= 1
        return picture(row)


@pytest.mark.parametrize(
    ("waits", "n_bytes", "together"),
    [(False, 2_000, False), (False, 100_000, True), (True, 2_000, True)],
    ids=["small", "large", "small, on a slow disk"],
)
def test_small_images_are_decoded_by_one_thread_at_a_time(
    *, waits: bool, n_bytes: int, together: bool
) -> None:
    crowd = Crowd(waits=waits)
    photos = image_set(128, image=crowd.image, n_bytes=n_bytes)
    asked = batch_rows(range(128), batch_size=64)
    batches = list(prepared_batches(photos, PREPROCESSING, batches=asked, workers=2))
    assert sum(len(images) for images, _ in batches) == 128
    assert (crowd.most == 2) is together


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_raises_as_itself_when_its_batch_is_due(workers: int) -> None:
    def image(row: int) -> U8:
        if row in (45, 47, 52):
            message = f"{row}.jpg: cannot be decoded"
            raise DatasetError(message)
        return picture(row)

    cut = batch_rows(range(500), batch_size=20)
    batches = prepared_batches(image_set(500, image=image), PREPROCESSING, batches=cut, workers=workers)
    next(batches)
    next(batches)
    with pytest.raises(DatasetError, match=r"45\.jpg"):
        next(batches)
    assert not decoding_threads()


def test_closing_early_ends_the_threads_without_decoding_what_is_queued() -> None:
    def image(row: int) -> U8:
        if row >= 16:
            time.sleep(0.05)
        return picture(row)

    cut = batch_rows(range(5000), batch_size=16)
    batches = prepared_batches(image_set(5000, image=image), PREPROCESSING, batches=cut, workers=2)
    next(batches)
    assert decoding_threads()
    start = time.perf_counter()
    batches.close()
    assert not decoding_threads()
    # one image for each thread, of the 64 in the queue
    assert time.perf_counter() - start < 1.5


def test_nothing_starts_before_the_first_batch_is_asked_for() -> None:
    prepared_batches(image_set(500), PREPROCESSING, batches=[range(16)] * 30, workers=2)
    assert not decoding_threads()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"batches": [], "workers": -1}, "workers -1"),
        ({"batches": [range(4), range(5, 31)], "workers": 1}, "outside the 30 images of split 'test'"),
        ({"batches": [range(-1, 3)], "workers": 1}, "outside the 30 images of split 'test'"),
    ],
)
def test_arguments_out_of_range_are_refused_at_once(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        prepared_batches(image_set(30), PREPROCESSING, **arguments)
    with pytest.raises(ValueError, match="batch_size 0 is less than 1"):
        batch_rows(range(30), batch_size=0)
