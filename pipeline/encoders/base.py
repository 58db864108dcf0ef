"""The contract of every encoder: a batch of prepared images to a batch of embeddings."""

from collections.abc import Callable
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
    """

    info: EncoderInfo
    preprocessing: Preprocessing
    encode: Callable[[U8], F32]
    device: str
