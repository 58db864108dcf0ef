"""Embeddings made ready for float32 arithmetic: norms, a common centre, an exact power-of-two scale."""

from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import F32, F64

# Values looked at in one go: the float64 copy stays in the cache.
CHUNK_VALUES = 1 << 16
# Rows from which the centre is estimated; any point near the data serves.
CENTRE_ROWS = 256
# Squared length of the mean over the mean squared distance to it. Above, distances are taken about the mean;
# below, the rounding of |x|^2 + |y|^2 - 2xy is small beside the distances, and a pass over the data is saved.
FAR_FROM_ORIGIN = 16.0
# Largest squared norm within which no float32 product overflows, nor underflows to nothing.
SAFE_SQUARES = (2.0**-50, 2.0**60)
# After scaling, rows with squares below this are left to float64: their float32 products could underflow.
TINY_SQUARE = 2.0**-80


@dataclass(frozen=True, slots=True)
class Rows:
    """The embeddings of a split, and what all blocks need to know about its rows.

    Attributes:
        embeddings: (N, D) float32, as they came.
        scale: the power of two that gathered rows are multiplied with; 1 but for extreme values.
        centre: (D,) float32, subtracted from scaled rows for methods on distances; None where it is
            not needed.
        squares: (N,) float32, squared norm of the scaled rows.
        centred_squares: (N,) float32, squared norm of the scaled and centred rows.
        inverse_norms: (N,) float32, 1 / norm of the scaled rows; 0 for a zero row, whose cosines are 0; NaN
            for rows that float32 cannot compare.
        square_ratio: the largest (|x|^2 + |y|^2) / (2 |x| |y|) of two rows, 1 where all are as long; infinite
            where one is zero.
    """

    embeddings: F32
    scale: float
    centre: F32 | None
    squares: F32
    centred_squares: F32
    inverse_norms: F32
    square_ratio: float


def prepare(embeddings: F32) -> Rows:
    """Norms, centre and scale of (N, D) float32 embeddings, finite; streamed."""
    squares = squared_norms(embeddings)
    scale = _power_of_two(float(squares.max(initial=0.0)))
    squares *= scale * scale
    centre = _centre(embeddings, scale=scale)
    centred = squares if centre is None else squared_norms(embeddings, scale=scale, centre=centre)
    norms = np.sqrt(squares)
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    inverse[(squares > 0) & (squares < TINY_SQUARE)] = np.nan
    return Rows(
        embeddings=embeddings,
        scale=scale,
        centre=centre,
        squares=squares.astype(np.float32),
        centred_squares=centred.astype(np.float32),
        inverse_norms=inverse.astype(np.float32),
        square_ratio=_square_ratio(norms),
    )


def _square_ratio(norms: F64) -> float:
    shortest, longest = float(norms.min(initial=np.inf)), float(norms.max(initial=0.0))
    return (longest / shortest + shortest / longest) / 2 if shortest > 0 else np.inf


def squared_norms(embeddings: F32, *, scale: float = 1.0, centre: F32 | None = None) -> F64:
    """(N,) float64 squared norms of `scale * x - centre`, streamed."""
    squares = np.empty(len(embeddings))
    step = max(1, CHUNK_VALUES // max(1, embeddings.shape[1]))
    for first in range(0, len(embeddings), step):
        chunk = embeddings[first : first + step].astype(np.float64)
        if centre is not None:
            chunk *= scale
            chunk -= centre
        np.einsum("nd,nd->n", chunk, chunk, out=squares[first : first + step])
    return squares


def _power_of_two(largest: float) -> float:
    """What brings the largest squared norm to about 1, where it is not safe as it is."""
    if largest == 0.0 or SAFE_SQUARES[0] <= largest <= SAFE_SQUARES[1]:
        return 1.0
    # A float32 factor: 2**127 at most, so the smallest subnormals end at about 2**-22 rather than 1.
    exponent = int(np.clip(-np.frexp(np.sqrt(largest))[1], -126, 127))
    return float(np.ldexp(1.0, exponent))


def _centre(embeddings: F32, *, scale: float) -> F32 | None:
    """Mean of some rows, where the data lie so far from the origin that distances would lose digits."""
    step = max(1, len(embeddings) // CENTRE_ROWS)
    some = embeddings[::step][:CENTRE_ROWS].astype(np.float64) * scale
    mean = some.mean(axis=0)
    spread = float(np.square(some - mean).sum(axis=1).mean())
    return mean.astype(np.float32) if float(mean @ mean) > FAR_FROM_ORIGIN * spread else None
