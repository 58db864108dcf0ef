"""Numbers that tell a healthy set of embeddings from a collapsed or a spoiled one."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import F32, F64, I64

# Values looked at in one go.
BLOCK_VALUES = 1 << 22
# Up to this many dimensions the spectrum is that of all rows; above, of as many rows.
SPECTRUM_SIZE = 2048


@dataclass(frozen=True, slots=True)
class Health:
    """What can be said of (N, D) embeddings.

    Attributes:
        not_finite: (n,) int64, rows with NaN or infinity; all that follows is of the other rows.
        all_zero: (n,) int64, rows of zeros alone.
        norms: smallest, median and largest Euclidean norm; None where no row is left.
        constant_dimensions: how many of the D have one value in all rows.
        effective_rank: how many dimensions the rows spread over; None where no row differs from another.
        effective_rank_rows: of how many rows, evenly spaced.
    """

    not_finite: I64
    all_zero: I64
    norms: tuple[float, float, float] | None
    constant_dimensions: int
    effective_rank: float | None
    effective_rank_rows: int


def embedding_health(embeddings: F32) -> Health:
    """Look at embeddings, block by block: memory does not grow with their number.

    Args:
        embeddings: (N, D) float32.

    Returns:
        What was seen. The effective rank is that of Roy and Vetterli 2007: the exponential of the entropy
        of the singular values of the centred rows, each divided by their sum. It is D for a round cloud
        of points, and 1 for points on a line.
    """
    n_rows, dim = embeddings.shape
    norms = np.empty(n_rows, dtype=np.float64)
    lowest, highest = np.full(dim, np.inf, np.float32), np.full(dim, -np.inf, np.float32)
    for first, block in _blocks(embeddings):
        norms[first : first + len(block)] = np.sqrt(np.einsum("nd,nd->n", block, block, dtype=np.float64))
        finite = block[np.isfinite(block).all(axis=1)]
        if len(finite):
            np.minimum(lowest, finite.min(axis=0), out=lowest)
            np.maximum(highest, finite.max(axis=0), out=highest)
    good = np.isfinite(norms)
    rank, n_used = _effective_rank(embeddings, good)
    return Health(
        not_finite=np.flatnonzero(~good),
        all_zero=np.flatnonzero(norms == 0),
        norms=_summary(norms[good]) if good.any() else None,
        constant_dimensions=int(np.count_nonzero(lowest == highest)),
        effective_rank=rank,
        effective_rank_rows=n_used,
    )


def _summary(values: F64) -> tuple[float, float, float]:
    return float(values.min()), float(np.median(values)), float(values.max())


def _effective_rank(
    embeddings: F32, good: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
) -> tuple[float | None, int]:
    """Of all good rows, or of some where there are more dimensions than `SPECTRUM_SIZE`."""
    rows = np.flatnonzero(good)
    if embeddings.shape[1] > SPECTRUM_SIZE and len(rows) > SPECTRUM_SIZE:
        rows = rows[np.linspace(0, len(rows) - 1, SPECTRUM_SIZE).astype(np.int64)]
    if len(rows) < 2:
        return None, len(rows)
    if embeddings.shape[1] <= SPECTRUM_SIZE:
        squares = _covariance(embeddings, rows)
    else:
        some = np.asarray(embeddings[rows], dtype=np.float64)
        some -= some.mean(axis=0)
        squares = some @ some.T  # the same nonzero eigenvalues
    eigenvalues = np.clip(np.linalg.eigvalsh(squares), 0, None)
    singular = np.sqrt(eigenvalues[eigenvalues > eigenvalues.max() * 1e-12])
    if not len(singular):
        return None, len(rows)
    shares = singular / singular.sum()
    return float(np.exp(-(shares * np.log(shares)).sum())), len(rows)


def _covariance(embeddings: F32, rows: I64) -> F64:
    """(D, D) float64: the scatter of the rows about their mean."""
    dim = embeddings.shape[1]
    step = max(1, BLOCK_VALUES // max(1, dim))
    parts = [rows[first : first + step] for first in range(0, len(rows), step)]
    mean = sum((embeddings[part].sum(axis=0, dtype=np.float64) for part in parts), np.zeros(dim)) / len(rows)
    scatter = np.zeros((dim, dim))
    for part in parts:
        centred = embeddings[part] - mean
        scatter += centred.T @ centred
    return scatter


def _blocks(embeddings: F32) -> Iterator[tuple[int, F32]]:
    step = max(1, BLOCK_VALUES // max(1, embeddings.shape[1]))
    for first in range(0, len(embeddings), step):
        yield first, embeddings[first : first + step]
