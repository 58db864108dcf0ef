"""What a step of a chain is, and the sums over rows that fitting needs, in float64 and streamed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fsnl.cache.arrays import F64

# (n, D) float64 -> (n, D') float64, row by row.
Apply: TypeAlias = Callable[[F64], F64]
# A fresh pass over the rows to fit on, as (n, D) float64 chunks in row order.
Stream: TypeAlias = Callable[[], Iterator[F64]]


@dataclass(frozen=True, slots=True)
class Step:
    """One link of a chain.

    Attributes:
        text: as the user wrote it, `zscore:train`.
        source: the split that it is fitted on, `train` or `other.h5:train`; None where nothing is fitted.
        fit: from those rows, earlier steps applied, to the function of a row; called without rows (an empty
            stream) where source is None.
    """

    text: str
    source: str | None
    fit: Callable[[Stream], Apply]


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean (D,) and sum of squared deviations (D,) of rows."""

    count: int
    mean: F64
    deviations: F64


def moments(stream: Stream) -> Moments:
    """One pass: chunks merged by Chan et al. 1983, which loses no digits on data far from the origin."""
    total = Moments(0, np.zeros(1), np.zeros(1))
    for chunk in stream():
        mean = chunk.mean(axis=0)
        part = Moments(len(chunk), mean, np.square(chunk - mean).sum(axis=0))
        count = total.count + part.count
        shift = part.mean - total.mean if total.count else np.zeros_like(mean)
        total = Moments(
            count,
            total.mean + shift * (part.count / count) if total.count else part.mean,
            total.deviations + part.deviations + shift**2 * (total.count * part.count / count),
        )
    return total
