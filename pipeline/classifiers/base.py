"""The contract of every classifier, and how scores become an answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fsnl.cache.arrays import I64, Bool, Floats
from fsnl.pipeline.classifiers.block import Block, Shared

Scores: TypeAlias = Callable[[Floats, Floats], Floats]

# In float64, scores closer than this, relative to their size, are a tie: the lowest way answers.
TIE = 1e-12
# The same of cosines and what is made of them. Rows far from the origin have cosines that differ no more than
# by that; rounding makes about 16 units of 2**-53 of it, with 21,168 dimensions too.
COSINE_TIE = 2.0**-46


@dataclass(frozen=True, slots=True)
class Answer:
    """What a classifier answers for a block.

    Attributes:
        ways: (B, n) int64, the way of each query.
        close: (B, n), where rounding in float32 could have decided; the engine scores these in float64.
    """

    ways: I64
    close: Bool


@dataclass(frozen=True, slots=True)
class Classifier:
    """A method that only compares embeddings.

    Attributes:
        name: as it stands in results, `1nn`.
        scores: support (B, W, K, D), query (B, n, D) -> (B, n, W), higher is better, in the dtype that comes
            in: float32, or float64 for close calls.
        fast: the same answers from a block's shared quantities, with the close calls marked; None where
            `scores` decides alone.
        shared: the block's quantities that `fast` asks for, computed once for all who ask.
        min_supports: the least W * K that it can work with.
        unit: size of scores below which a float64 difference of `tie` times it is rounding: 1 for cosines and
            other scores about 0; 0 for distances, whose rounding is relative to themselves.
        tie: float64 scores closer than this, relative to their size or to `unit`, are a tie.
    """

    name: str
    scores: Scores
    fast: Callable[[Block], Answer] | None = None
    shared: frozenset[Shared] = frozenset()
    min_supports: int = 1
    unit: float = 0.0
    tie: float = TIE


def decide(scores: Floats) -> I64:
    """The way with the highest score, the lowest such way in a tie: (..., W) -> (...,) int64."""
    return np.asarray(scores.argmax(axis=-1), dtype=np.int64)


def decide_with_ties(scores: Floats, classifier: Classifier) -> I64:
    """The lowest way whose float64 score is the best one's but for rounding: (..., W) -> (...,) int64."""
    best = scores.max(axis=-1, keepdims=True)
    return decide(scores >= best - classifier.tie * np.maximum(np.abs(best), classifier.unit))


def rank(scores: Floats, *, relative: float = 0.0, absolute: Floats | float = 0.0) -> Answer:
    """The way of the best score, close where the second best lies within rounding of it.

    Args:
        scores: (B, W, n) floating.
        relative: rounding of the difference of two scores, relative to the best one.
        absolute: the same as it is, broadcast to (B, n).
    """
    best = scores[:, 0].copy()
    second = np.full_like(best, -np.inf)
    ways = np.zeros(best.shape, dtype=np.int64)
    for way in range(1, scores.shape[1]):
        score = scores[:, way]
        np.copyto(ways, way, where=score > best)
        np.maximum(second, np.minimum(score, best), out=second)
        np.maximum(best, score, out=best)
    with np.errstate(invalid="ignore"):
        clear = best - second > relative * np.abs(best) + absolute
    return Answer(ways=ways, close=~clear)  # NaN is never clear
