"""The contract of every encoder: a batch of prepared images to a batch of embeddings."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from fsnl.cache.arrays import F32, U8
from fsnl.cache.schema import EncoderInfo, Preprocessing


@dataclass(frozen=True, slots=True)
class Encoder:
    """A network (or none) ready to run.

    Attributes:
        info: name, weights, layer, precision, labels its training saw.
        preprocessing: how images are prepared for it.
        encode: (B, S, S, 3) uint8 RGB with S = preprocessing.crop -> (B, D) float32. Division by 255 and
            normalisation happen inside, on the encoder's device. The rows of a result do not depend on
            one another, save in the last digits through the batch size.
        device: where it runs, `cpu`, `cuda:0`, ...
        batch_size: images per call that suit it: large enough for its speed, small enough for the memory.
        start: begins what `encode` does and returns before it is done; calling what it returns waits for
            the embeddings. None where encoding keeps the calling thread busy: there, several threads may
            encode at once.
        threads: a context to hold while several threads encode at once; it keeps each of them to one core.
    """

    info: EncoderInfo
    preprocessing: Preprocessing
    encode: Callable[[U8], F32]
    device: str
    batch_size: int = 64
    start: Callable[[U8], Callable[[], F32]] | None = None
    threads: Callable[[], AbstractContextManager[None]] = nullcontext
