"""A torch network as an encoder: device, arithmetic, and normalisation where the network runs."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch

from fsnl.cache.arrays import F32, U8
from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import EncoderInfo, Preprocessing
from fsnl.pipeline.encoders.base import Encoder

_REDUCED = {"bf16": torch.bfloat16, "fp16": torch.float16}

# What torch and networks raise on inputs of a shape that they cannot take.
_ABOUT_SHAPES = (RuntimeError, ValueError, AssertionError)

# Pixels per batch, and the fewest and most images.
_CPU_PIXELS, _CPU_BATCHES = 512 * 1024, (16, 256)
_DEVICE_PIXELS, _DEVICE_BATCHES = 16 * 1024 * 1024, (64, 1024)


class NotEncoded(EncoderError):
    """A batch that the network itself failed on."""


class OutOfDeviceMemory(EncoderError):
    """A batch that the device has no memory for."""


def choose_device(device: str) -> torch.device:
    """The device for the user's word; `auto` takes CUDA, else MPS, else the CPU.

    Where `torchrun` started several processes on this host, each has a GPU of its own, in turn.

    Args:
        device: `auto`, `cpu`, `cuda` (the first, or this process's), `cuda:INDEX` or `mps`.

    Raises:
        EncoderError: it is not there; the message names what is.
    """
    there = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    own = int(os.environ.get("LOCAL_RANK", "0")) % max(1, len(there))
    if torch.backends.mps.is_available():
        there.append("mps")
    there.append("cpu")
    if device == "auto":
        return torch.device(there[own])
    wanted = f"cuda:{own}" if device == "cuda" else device
    if wanted not in there:
        reason = "" if torch.version.cuda else f" (this torch, {torch.__version__}, is built without CUDA)"
        message = f"device {device!r} is not here; there is {', '.join(there)}{reason}"
        raise EncoderError(message)
    return torch.device(wanted)


def network_encoder(
    network: torch.nn.Module, *, info: EncoderInfo, preprocessing: Preprocessing, device: torch.device
) -> Encoder:
    """Move a network to its device, try it there, and choose the batch size.

    Channels lie last, which is faster; where the network cannot take that, as it asks for views of its maps,
    they lie as in plain torch.

    Args:
        network: (B, 3, S, S) normalised float32 -> (B, D); it is put in evaluation mode.
        info: its name, for errors, and the precision to compute in.
        preprocessing: mean, standard deviation and S = `crop`.
        device: where it runs.

    Returns:
        An encoder that raises `EncoderError` where a batch does not fit the device's memory.

    Raises:
        EncoderError: the precision is not available, the network cannot take images of S pixels, or gives
            anything but one vector of real numbers for each.
    """
    network = network.eval().requires_grad_(False).to(device)
    side = preprocessing.crop
    for memory_format in (torch.channels_last, torch.contiguous_format):
        start = starter(
            network.to(memory_format=memory_format),
            info=info,
            preprocessing=preprocessing,
            device=device,
            memory_format=memory_format,
        )
        try:
            start(np.zeros((1, side, side, 3), np.uint8))()
        except NotEncoded as error:
            if memory_format == torch.contiguous_format:
                advice = "; try another --image-size" if isinstance(error.__cause__, _ABOUT_SHAPES) else ""
                message = f"{error}{advice}"
                raise EncoderError(message) from error
        else:
            break
    on_cpu = device.type == "cpu"
    return Encoder(
        info=info,
        preprocessing=preprocessing,
        encode=lambda images: start(images)(),
        device=str(device),
        batch_size=_cpu_batch_size(side) if on_cpu else largest_batch_size(start, side=side),
        start=None if on_cpu else start,
        threads=_one_core_each if on_cpu else nullcontext,
    )


def starter(
    network: torch.nn.Module,
    *,
    info: EncoderInfo,
    preprocessing: Preprocessing,
    device: torch.device,
    memory_format: torch.memory_format = torch.channels_last,
    pinned: bool | None = None,
) -> Callable[[U8], Callable[[], F32]]:
    """The function that `Encoder.start` is: images go to the device as bytes, and are normalised there.

    Args:
        network: on its device, ready to run.
        info: its name, for errors, and the precision to compute in.
        preprocessing: mean and standard deviation.
        device: where it runs.
        memory_format: how its inputs lie in memory.
        pinned: whether batches pass through page-locked memory, which the device copies from and to by
            itself while the next batch is prepared; None for what the device can.
    """
    mean, std = (
        torch.tensor(values, device=device).reshape(1, 3, 1, 1)
        for values in (preprocessing.mean, preprocessing.std)
    )
    computing = arithmetic(info.precision, device=device)
    pinned = device.type == "cuda" if pinned is None else pinned

    def start(images: U8) -> Callable[[], F32]:
        # torch warns of read-only memory, such as a mapped file's; require copies just that
        batch = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        try:
            with torch.inference_mode(), computing(), exact_float32(device):
                on_device = (batch.pin_memory() if pinned else batch).to(device, non_blocking=pinned)
                # a view: (B, S, S, 3) in C order is (B, 3, S, S) in channels-last order
                inputs = on_device.permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std)
                output = network(inputs.contiguous(memory_format=memory_format))
                _check_output(output, n_images=len(images), info=info)
                embeddings = output.float()
                return _fetched_while_running(embeddings) if pinned else embeddings.cpu().numpy
        except torch.cuda.OutOfMemoryError as error:
            message = f"{info.name}: {len(images)} images do not fit {device}; use a smaller --batch-size"
            raise OutOfDeviceMemory(message) from error
        except (EncoderError, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # whatever a network of the user's own may do
            size, reason = f"{preprocessing.crop} x {preprocessing.crop} pixels", first_line(error)
            if not isinstance(error, _ABOUT_SHAPES):
                reason = f"{type(error).__name__}: {reason}"
            message = f"{info.name} cannot encode images of {size} in {info.precision} on {device}: {reason}"
            raise NotEncoded(message) from error

    return start


def _check_output(output: torch.Tensor, *, n_images: int, info: EncoderInfo) -> None:
    if output.ndim != 2 or len(output) != n_images or output.shape[1] == 0 or output.is_complex():
        kind = str(output.dtype).removeprefix("torch.")
        message = (
            f"{info.name} gives {kind} {tuple(output.shape)} for {n_images} images of one batch, "
            f"needed real numbers ({n_images}, D), D at least 1"
        )
        raise EncoderError(message)


def _fetched_while_running(embeddings: torch.Tensor) -> Callable[[], F32]:
    """Queue the copy to the host behind the work that makes the embeddings; the result waits for it."""
    on_host = torch.empty(embeddings.shape, dtype=embeddings.dtype, pin_memory=True)
    on_host.copy_(embeddings, non_blocking=True)
    done = torch.cuda.current_stream(embeddings.device).record_event()

    def wait() -> F32:
        done.synchronize()
        fetched: F32 = on_host.numpy()
        return fetched

    return wait


def _cpu_batch_size(side: int) -> int:
    """Images of `side` pixels per batch on one core.

    Half a million pixels: below that a batch no longer pays for reading the weights (a ResNet-18 took 2.5
    times as long for each 32 px image in batches of 16 as in batches of 128), above it nothing is gained.
    A function of the size alone, so that every machine computes the same.
    """
    return max(_CPU_BATCHES[0], min(_CPU_BATCHES[1], _power_of_two(_CPU_PIXELS // (side * side))))


def largest_batch_size(start: Callable[[U8], Callable[[], F32]], *, side: int) -> int:
    """Images per batch on a device: enough to keep it busy, halved until two batches fit its memory."""
    size = max(_DEVICE_BATCHES[0], min(_DEVICE_BATCHES[1], _power_of_two(_DEVICE_PIXELS // (side * side))))
    while True:
        images = np.zeros((size, side, side, 3), np.uint8)
        try:
            first, second = start(images), start(images)
            first(), second()
        except OutOfDeviceMemory:
            if size == 1:
                raise
            size //= 2
        else:
            return size


def _power_of_two(number: int) -> int:
    """The largest power of two that is at most `number`, 1 for less."""
    return 1 << max(0, number.bit_length() - 1)


@contextmanager
def _one_core_each() -> Iterator[None]:
    """Threads that start inside compute on one core each; the number that was set is put back."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def first_line(error: BaseException) -> str:
    """What a library said, without its stack."""
    try:
        text = str(error).strip()
    except Exception:  # an exception of the user's own network may fail at that, too
        text = ""
    return (text or type(error).__name__).splitlines()[0].rstrip(".")


def arithmetic(precision: str, *, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
    """A maker of contexts in which networks compute in `precision`.

    Raises:
        EncoderError: this torch cannot do that on this device.
    """
    if precision == "fp32":
        return nullcontext
    with warnings.catch_warnings():
        # where it cannot, torch warns and goes on in float32
        warnings.simplefilter("error")
        try:
            torch.autocast(device.type, dtype=_REDUCED[precision])
        except (RuntimeError, UserWarning) as error:
            message = f"precision {precision} is not available on {device}: {first_line(error)}"
            raise EncoderError(message) from error
    return lambda: torch.autocast(device.type, dtype=_REDUCED[precision])


@contextmanager
def exact_float32(device: torch.device) -> Iterator[None]:
    """CUDA computes float32 as float32, not TF32, by the same algorithm every time; flags are put back."""
    if device.type != "cuda":
        yield
        return
    matmul = torch.backends.cuda.matmul
    tf32 = matmul.allow_tf32
    if tf32:
        matmul.allow_tf32 = False
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        if tf32:
            matmul.allow_tf32 = True
