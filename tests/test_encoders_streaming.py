"""Images to embeddings by threads or through a device: order, bounds, errors, and threads that end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_prepared_batches import PREPROCESSING, image_set, picture

from fsnl.cache.arrays import F32, U8
from fsnl.cache.errors import DatasetError, EncoderError
from fsnl.cache.fingerprint import image_digest
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.batches import batch_rows
from fsnl.pipeline.encoders.network import OutOfDeviceMemory, largest_batch_size, network_encoder, starter
from fsnl.pipeline.encoders.pixels import PIXELS_INFO, encode_pixels, pixels_encoder
from fsnl.pipeline.encoders.preprocessing import prepare
from fsnl.pipeline.encoders.streaming import embedded_batches

ON_CPU = pixels_encoder(PREPROCESSING)


def started(images: U8) -> Callable[[], F32]:
    embeddings = encode_pixels(images)
    return lambda: embeddings


ON_DEVICE = replace(ON_CPU, start=started)
both = pytest.mark.parametrize("encoder", [ON_CPU, ON_DEVICE], ids=["cpu", "device"])


def threads_of_ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("fsnl-")]


@both
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_batch_comes_once_and_in_order(encoder: Encoder, workers: int) -> None:
    batches = batch_rows(range(67), batch_size=5)
    found = list(embedded_batches(image_set(67), encoder, batches=batches, workers=workers))
    assert [len(embeddings) for embeddings, _ in found] == [5] * 13 + [2]
    embeddings, digests = (np.concatenate(parts) for parts in zip(*found, strict=True))
    assert digests.tolist() == [image_digest(picture(row)) for row in range(67)]
    wanted = np.stack([prepare(picture(row), preprocessing=PREPROCESSING) for row in range(67)])
    np.testing.assert_array_equal(embeddings, encode_pixels(wanted))
    assert not threads_of_ours()


@both
@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_raises_as_itself_when_its_batch_is_due(encoder: Encoder, workers: int) -> None:
    def image(row: int) -> U8:
        if row in (45, 47, 52):
            message = f"{row}.jpg: cannot be decoded"
            raise DatasetError(message)
        return picture(row)

    batches = batch_rows(range(500), batch_size=20)
    found = embedded_batches(image_set(500, image=image), encoder, batches=batches, workers=workers)
    next(found)
    with pytest.raises(DatasetError, match=r"45\.jpg"):
        list(found)
    assert not threads_of_ours()


@both
def test_work_runs_ahead_but_not_far(encoder: Encoder) -> None:
    decoded = []

    def image(row: int) -> U8:
        decoded.append(row)
        return picture(row)

    batches = batch_rows(range(3000), batch_size=20)
    found = embedded_batches(image_set(3000, image=image), encoder, batches=batches, workers=2)
    for n_taken, _ in enumerate(found, 1):
        # two threads and two spare batches; on a device, 4 batches decoded and one in work
        assert 20 * n_taken <= len(decoded) <= 20 * (n_taken + 5)


def test_closing_early_encodes_no_more() -> None:
    encoded = []

    def encode(images: U8) -> F32:
        encoded.append(len(images))
        return encode_pixels(images)

    encoder = replace(ON_CPU, encode=encode)
    found = embedded_batches(image_set(900), encoder, batches=batch_rows(range(900), batch_size=9), workers=2)
    next(found)
    found.close()
    assert len(encoded) <= 1 + 4
    assert not threads_of_ours()


def test_the_context_for_threads_is_held_while_batches_are_made() -> None:
    held = []

    @contextmanager
    def threads() -> Iterator[None]:
        held.append("in")
        yield
        held.append("out")

    encoder = replace(ON_CPU, threads=threads)
    found = embedded_batches(image_set(8), encoder, batches=[range(4), range(4, 8)], workers=1)
    assert held == []
    next(found)
    assert held == ["in"]
    list(found)
    assert held == ["in", "out"]


def test_a_network_on_a_cpu_computes_on_one_core_in_each_thread_and_the_setting_returns() -> None:
    seen = set()

    class Watching(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            seen.add((threading.current_thread().name.startswith("fsnl-"), torch.get_num_threads()))
            return inputs.mean((2, 3))

    before = torch.get_num_threads()
    encoder = network_encoder(
        Watching(), info=PIXELS_INFO, preprocessing=PREPROCESSING, device=torch.device("cpu")
    )
    seen.clear()
    list(embedded_batches(image_set(40), encoder, batches=batch_rows(range(40), batch_size=4), workers=3))
    assert seen == {(True, 1)}
    assert torch.get_num_threads() == before


def test_the_number_of_threads_changes_no_bit() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.Flatten(), torch.nn.Linear(128, 50))
    encoder = network_encoder(
        network, info=PIXELS_INFO, preprocessing=PREPROCESSING, device=torch.device("cpu")
    )
    batches = batch_rows(range(120), batch_size=16)
    runs = [
        np.concatenate([e for e, _ in embedded_batches(image_set(120), encoder, batches=batches, workers=n)])
        for n in (0, 1, 2, 5)
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run, runs[0])


def test_the_batch_size_on_a_cpu_follows_from_the_image_size_alone() -> None:
    def batch_size(side: int) -> int:
        preprocessing = replace(PREPROCESSING, resize=side, crop=side)
        network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        encoder = network_encoder(
            network, info=PIXELS_INFO, preprocessing=preprocessing, device=torch.device("cpu")
        )
        return encoder.batch_size

    assert [batch_size(side) for side in (8, 32, 84, 224, 600)] == [256, 256, 64, 16, 16]


def test_the_batch_size_on_a_device_is_halved_until_two_batches_fit() -> None:
    in_work = []

    def start(images: U8) -> Callable[[], F32]:
        in_work.append(len(images))
        if sum(in_work) > 300:
            in_work.clear()
            message = "does not fit"
            raise OutOfDeviceMemory(message)

        def wait() -> F32:
            in_work.pop()
            return encode_pixels(images)

        return wait

    # 1024 and 512 do not fit, of 256 one does and two do not
    assert largest_batch_size(start, side=84) == 128


def test_on_a_device_a_batch_is_fetched_only_when_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Event:
        def synchronize(self) -> None:
            happened.append("waited")

    class Stream:
        def record_event(self) -> Event:
            happened.append("queued")
            return Event()

    def page_locked(batch: torch.Tensor) -> torch.Tensor:
        assert batch.dtype == torch.uint8, "images go to the device as bytes"
        happened.append("locked")
        return batch

    allocate = torch.empty
    monkeypatch.setattr(torch.Tensor, "pin_memory", page_locked)
    monkeypatch.setattr(torch, "empty", lambda shape, *, dtype, pin_memory: allocate(shape, dtype=dtype))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    preprocessing = replace(PREPROCESSING, mean=(0.5, 0.25, 0.0), std=(0.5, 1.0, 2.0))
    start = starter(
        torch.nn.Flatten(),
        info=PIXELS_INFO,
        preprocessing=preprocessing,
        device=torch.device("cpu"),
        pinned=True,
    )
    wait = start(np.full((2, 1, 1, 3), 255, np.uint8))
    assert happened == ["locked", "queued"]
    # (1 - 0.5) / 0.5, (1 - 0.25) / 1 and (1 - 0) / 2
    np.testing.assert_array_equal(wait(), np.array([[1, 0.75, 0.5]] * 2, np.float32))
    assert happened == ["locked", "queued", "waited"]


def test_a_device_without_memory_for_one_image_says_so() -> None:
    def start(images: U8) -> Callable[[], F32]:
        message = f"{len(images)} images do not fit cuda:0"
        raise OutOfDeviceMemory(message)

    with pytest.raises(EncoderError, match="1 images do not fit cuda:0"):
        largest_batch_size(start, side=84)


@both
def test_arguments_out_of_range_are_refused_at_once(encoder: Encoder) -> None:
    with pytest.raises(ValueError, match="workers -1"):
        embedded_batches(image_set(3), encoder, batches=[], workers=-1)
    with pytest.raises(ValueError, match="outside the 3 images"):
        embedded_batches(image_set(3), encoder, batches=[range(4)], workers=1)
