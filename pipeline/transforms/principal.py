"""Projections on principal components: pca and whiten."""

from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import F64
from fsnl.cache.errors import ScoringError
from fsnl.pipeline.transforms.base import Apply, Step, Stream, moments

# Side of the largest matrix whose eigenvectors are computed: 128 MiB, and about a minute on two cores.
MAX_SIDE = 4096


@dataclass(frozen=True, slots=True)
class Components:
    """Principal components of some rows.

    Attributes:
        mean: (D,) float64.
        axes: (D, R) float64, orthonormal, by falling variance; each one's largest entry is positive.
        variances: (R,) float64, above rounding; n - 1 in the denominator.
    """

    mean: F64
    axes: F64
    variances: F64


def pca(source: str, dim: int) -> Step:
    """The first `dim` principal components of the source's rows, its mean taken off."""
    text = f"pca:{source}:{dim}"

    def fit(stream: Stream) -> Apply:
        found = components(stream, text=text)
        axes = found.axes[:, : _checked(dim, found, text=text)]
        return lambda rows: (rows - found.mean) @ axes

    return Step(text, source, fit)


def whiten(source: str, dim: int | None) -> Step:
    """The same, each divided by its standard deviation; `dim` None keeps all that vary."""
    text = f"whiten:{source}" if dim is None else f"whiten:{source}:{dim}"

    def fit(stream: Stream) -> Apply:
        found = components(stream, text=text)
        n_kept = len(found.variances) if dim is None else _checked(dim, found, text=text)
        axes = found.axes[:, :n_kept] / np.sqrt(found.variances[:n_kept])
        return lambda rows: (rows - found.mean) @ axes

    return Step(text, source, fit)


def components(stream: Stream, *, text: str) -> Components:
    """From the D x D matrix of second moments, or the N x N matrix of inner products where N is less.

    Raises:
        ScoringError: both are too large, or the rows do not vary.
    """
    found = moments(stream)
    n_rows, dim = found.count, len(found.mean)
    if min(n_rows, dim) > MAX_SIDE:
        msg = (
            f"{text}: {n_rows:,} rows of {dim:,} dimensions; principal components are computed for up to "
            f"{MAX_SIDE:,} of either, use center or zscore"
        )
        raise ScoringError(msg)
    if dim <= n_rows:
        second = np.zeros((dim, dim))
        for chunk in stream():
            centred = chunk - found.mean
            second += centred.T @ centred
        squares, axes = _falling(second)
    else:
        rows = np.concatenate([chunk - found.mean for chunk in stream()])
        squares, left = _falling(rows @ rows.T)
        axes = rows.T @ left / np.sqrt(squares)
    if not squares.size:
        msg = f"{text}: the {n_rows:,} rows are all the same, there is nothing to project on"
        raise ScoringError(msg)
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return Components(found.mean, axes * np.sign(largest), squares / (n_rows - 1))


def _falling(matrix: F64) -> tuple[F64, F64]:
    """Eigenvalues above rounding, falling, and their eigenvectors as columns."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > values[-1] * len(values) * np.finfo(np.float64).eps
    return values[kept][::-1], vectors[:, kept][:, ::-1]


def _checked(dim: int, found: Components, *, text: str) -> int:
    if dim > len(found.variances):
        msg = f"{text}: the rows vary in {len(found.variances)} dimensions only; ask for that many or fewer"
        raise ScoringError(msg)
    return dim
