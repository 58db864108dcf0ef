"""A torch network as an encoder: device, arithmetic, and normalisation where the network runs."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch

from fsnl.cache.arrays import F32, U8
from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import EncoderInfo, Preprocessing

_REDUCED = {"bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(device: str) -> torch.device:
    """The device for the user's word; `auto` takes CUDA, else MPS, else the CPU.

    Args:
        device: `auto`, `cpu`, `cuda` (the first), `cuda:INDEX` or `mps`.

    Raises:
        EncoderError: it is not there; the message names what is.
    """
    there = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        there.append("mps")
    there.append("cpu")
    if device == "auto":
        return torch.device(there[0])
    wanted = "cuda:0" if device == "cuda" else device
    if wanted not in there:
        reason = "" if torch.version.cuda else f" (this torch, {torch.__version__}, is built without CUDA)"
        message = f"device {device!r} is not here; there is {', '.join(there)}{reason}"
        raise EncoderError(message)
    return torch.device(wanted)


def network_encode(
    network: torch.nn.Module, *, info: EncoderInfo, preprocessing: Preprocessing, device: torch.device
) -> Callable[[U8], F32]:
    """Move a network to its device and try it on one image.

    Args:
        network: (B, 3, S, S) normalised float32 -> (B, D); it is put in evaluation mode.
        info: its name, for errors, and the precision to compute in.
        preprocessing: mean, standard deviation and S = `crop`.
        device: where it runs.

    Returns:
        (B, S, S, 3) uint8 -> (B, D) float32, as `Encoder.encode` is; it raises `EncoderError` where a
        batch does not fit the device's memory.

    Raises:
        EncoderError: the precision is not available, or the network cannot take images of S pixels.
    """
    network = network.eval().to(device).to(memory_format=torch.channels_last)
    mean, std = (
        torch.tensor(values, device=device).reshape(1, 3, 1, 1)
        for values in (preprocessing.mean, preprocessing.std)
    )
    arithmetic = _arithmetic(info.precision, device=device)

    def encode(images: U8) -> F32:
        # torch warns of read-only memory, such as a mapped file's; require copies just that
        batch = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        try:
            with torch.inference_mode(), arithmetic(), exact_float32(device):
                # a view: (B, S, S, 3) in C order is (B, 3, S, S) in channels-last order
                inputs = batch.to(device).permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std)
                embeddings: F32 = network(inputs).float().cpu().numpy()
        except torch.cuda.OutOfMemoryError as error:
            message = f"{info.name}: {len(images)} images do not fit {device}; use a smaller --batch-size"
            raise EncoderError(message) from error
        return embeddings

    side = preprocessing.crop
    try:
        encode(np.zeros((1, side, side, 3), np.uint8))
    except (RuntimeError, ValueError, AssertionError) as error:
        message = (
            f"{info.name} cannot encode images of {side} x {side} pixels in {info.precision} on {device}: "
            f"{first_line(error)}; try another --image-size"
        )
        raise EncoderError(message) from error
    return encode


def first_line(error: Exception) -> str:
    """What a library said, without its stack."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _arithmetic(precision: str, *, device: torch.device) -> Callable[[], AbstractContextManager[object]]:
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
