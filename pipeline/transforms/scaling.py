"""Steps that work dimension by dimension or row by row: l2, center, zscore, power."""

import numpy as np

from fsnl.cache.arrays import F64
from fsnl.pipeline.transforms.base import Apply, Moments, Step, Stream, moments


def l2() -> Step:
    """Each row to length 1; a zero row stays."""
    return Step("l2", None, lambda _: _normalised)


def _normalised(rows: F64) -> F64:
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scaled = rows / np.where(largest > 0, largest, 1.0)  # squares neither overflow nor vanish
    norms = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))[:, None]
    return np.asarray(scaled / np.where(norms > 0, norms, 1.0))


def center(source: str) -> Step:
    """The mean of the source's rows taken off."""

    def fit(stream: Stream) -> Apply:
        mean = moments(stream).mean
        return lambda rows: rows - mean

    return Step(f"center:{source}", source, fit)


def zscore(source: str) -> Step:
    """Mean taken off, divided by the population standard deviation; constant dimensions are not divided.

    What scikit-learn's StandardScaler does, and the released code of Bharti et al. 2020.
    """

    def fit(stream: Stream) -> Apply:
        found = moments(stream)
        deviation = _deviation(found)
        return lambda rows: (rows - found.mean) / deviation

    return Step(f"zscore:{source}", source, fit)


def _deviation(found: Moments) -> F64:
    """(D,) standard deviation, 1 where it is zero but for the rounding of its computation."""
    variance = found.deviations / found.count
    unit = np.finfo(np.float64).eps
    rounding = found.count * unit * variance + (found.count * found.mean * unit) ** 2
    return np.where(variance <= rounding, 1.0, np.sqrt(variance))


def power(exponent: float) -> Step:
    """Each value to a power, its sign kept: |x|^P sgn(x); 1/2 brings skewed features nearer to Gaussian."""
    text = "power" if exponent == 0.5 else f"power:{exponent:g}"
    return Step(text, None, lambda _: lambda rows: np.copysign(np.abs(rows) ** exponent, rows))
