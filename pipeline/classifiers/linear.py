"""Classifiers that are linear in the query once fitted to an episode's supports, which is done in float64."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import F64, Floats
from fsnl.pipeline.classifiers.base import Answer, rank
from fsnl.pipeline.classifiers.block import Block
from fsnl.pipeline.classifiers.similarity import UNIT, VANISHING, product_error


@dataclass(frozen=True, slots=True)
class Linear:
    """Scores `(q - offset) . weights + bias`.

    Attributes:
        offset: (B, D) float64, the mean of the supports.
        weights: (B, W, D) float64.
        bias: (B, W) float64.
    """

    offset: F64
    weights: F64
    bias: F64


# Coefficients over supports: centred supports (B, m, D) and their Gram matrix (B, m, m), float64, and W
# to coefficients (B, m, W) and bias (B, W).
Solve = Callable[[F64, F64, int], tuple[F64, F64]]


def fit(support: Floats, *, solve: Solve) -> Linear:
    """Fit in float64; by the representer theorem the weights are sums of supports.

    Args:
        support: (B, W, K, D) floating.
        solve: what finds the coefficients.
    """
    n_episodes, n_way, _, dim = support.shape
    flat = support.reshape(n_episodes, -1, dim).astype(np.float64)
    offset = flat.mean(axis=1)
    flat -= offset[:, None]
    gram = np.matmul(flat, flat.swapaxes(1, 2))
    coefficients, bias = solve(flat, gram, n_way)
    return Linear(offset, np.matmul(coefficients.swapaxes(1, 2), flat), bias)


def linear_scores(support: Floats, query: Floats, *, solve: Solve) -> Floats:
    """(B, W, K, D) and (B, n, D) floating to (B, n, W) scores in their dtype, computed in float64."""
    model = fit(support, solve=solve)
    scores = np.matmul(query - model.offset[:, None], model.weights.swapaxes(1, 2))
    scores += model.bias[:, None]
    return np.asarray(scores, dtype=query.dtype)


def linear_answer(block: Block, *, solve: Solve) -> Answer:
    """The same with float32 products of the queries, about the split's centre where it has one."""
    rows = block.rows
    model = fit(block.precise_support, solve=solve)
    # The block holds y = scale * x - centre, so w . (x - o) = (w / scale) . (y - (scale * o - centre)).
    centre = 0.0 if rows.centre is None else rows.centre.astype(np.float64)
    offset = model.offset * rows.scale - centre
    weights = model.weights / rows.scale
    bias = model.bias - np.einsum("bwd,bd->bw", weights, offset)
    with np.errstate(over="ignore"):
        scores = np.matmul(weights.astype(np.float32), block.centred[1].swapaxes(1, 2))  # (B, W, n)
        scores += bias.astype(np.float32)[:, :, None]
    largest = np.sqrt(np.einsum("bwd,bwd->bw", weights, weights).max(axis=1))[:, None]
    error = product_error(block.query.shape[-1]) + 4 * UNIT
    size = largest * np.sqrt(block.query_squares) + np.abs(bias).max(axis=1)[:, None]
    return rank(scores, absolute=2 * error * size + VANISHING)
