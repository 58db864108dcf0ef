"""The contract of every classifier, and how scores become an answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fsnl.cache.arrays import F32, I64

Scores: TypeAlias = Callable[[F32, F32], F32]


@dataclass(frozen=True, slots=True)
class Classifier:
    """A method that only compares embeddings.

    Attributes:
        name: as it stands in results, `1nn`.
        scores: support (B, W, K, D), query (B, n, D) -> (B, n, W), higher is better; float32, or float64
            where `margin` is above 0 and float64 comes in.
        from_cosines: where the scores depend on cosines alone, the same from (B, n, W, K) cosines, so that
            several classifiers share them; else None.
        margin: relative gap between the best two scores below which rounding in float32 could decide; such
            queries are scored again in float64. 0 where scores are decisions already.
    """

    name: str
    scores: Scores
    from_cosines: Callable[[F32], F32] | None = None
    margin: float = 0.0


def decide(scores: F32) -> I64:
    """The way with the highest score, the lowest such way in a tie: (..., W) -> (...,) int64."""
    return np.asarray(scores.argmax(axis=-1), dtype=np.int64)
