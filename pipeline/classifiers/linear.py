"""Classifiers that are linear in the query once fitted to an episode's supports, which is done in float64."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import F64, Floats
from fsnl.cache.errors import ScoringError
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


# Least product of strength and squared length at which float64 tells the scores apart.
WEAKEST = 1e-9
# Supports that differ by less than this part of their squared length are equal but for rounding.
EQUAL = 1e-24


@dataclass(frozen=True, slots=True)
class Method:
    """How such a classifier is fitted.

    Attributes:
        name: for messages.
        strength: how far it lets the data outweigh the penalty: C, or 1 / LAMBDA.
        solve: centred supports (B, m, D) and their Gram matrix (B, m, m), float64, and W, to weights
            (B, W, D) and bias (B, W).
    """

    name: str
    strength: float
    solve: Callable[[F64, F64, int], tuple[F64, F64]]


def fit(support: Floats, *, method: Method) -> Linear:
    """Fit in float64.

    Args:
        support: (B, W, K, D) floating.
        method: what finds the weights.

    Raises:
        ScoringError: the supports are so small against the penalty that all scores would be equal, or so
            large that there is no solution in float64.
    """
    n_episodes, n_way, _, dim = support.shape
    flat = support.reshape(n_episodes, -1, dim).astype(np.float64)
    offset = flat.mean(axis=1)
    flat -= offset[:, None]
    gram = np.matmul(flat, flat.swapaxes(1, 2))
    squares = np.trace(gram, axis1=1, axis2=2)
    differ = squares > EQUAL * flat.shape[1] * np.square(offset).sum(axis=1)
    if (differ & (method.strength * squares < WEAKEST)).any():
        msg = (
            f"classifier {method.name}: the embeddings are so small against its penalty that all scores "
            "would be equal; try --transform l2 or zscore:train, or a weaker penalty"
        )
        raise ScoringError(msg)
    try:
        weights, bias = method.solve(flat, gram, n_way)
    except np.linalg.LinAlgError as error:
        msg = (
            f"classifier {method.name}: float64 cannot solve for its weights, the embeddings are too large "
            "against its penalty; try --transform l2 or zscore:train, or a stronger penalty"
        )
        raise ScoringError(msg) from error
    return Linear(offset, weights, bias)


def linear_scores(support: Floats, query: Floats, *, method: Method) -> Floats:
    """(B, W, K, D) and (B, n, D) floating to (B, n, W) scores in their dtype, computed in float64."""
    model = fit(support, method=method)
    scores = np.matmul(query - model.offset[:, None], model.weights.swapaxes(1, 2))
    scores += model.bias[:, None]
    return np.asarray(scores, dtype=query.dtype)


def linear_answer(block: Block, *, method: Method) -> Answer:
    """The same with float32 products of the queries, about the split's centre where it has one."""
    rows = block.rows
    model = fit(block.precise_support, method=method)
    # The block holds y = scale * x - centre, so w . (x - o) = (w / scale) . (y - (scale * o - centre)).
    centre = 0.0 if rows.centre is None else rows.centre.astype(np.float64)
    offset = model.offset * rows.scale - centre
    weights = model.weights / rows.scale
    bias = model.bias - np.einsum("bwd,bd->bw", weights, offset)
    with np.errstate(over="ignore"):
        scores = np.matmul(weights.astype(np.float32), block.centred[1].swapaxes(1, 2))  # (B, W, n)
        scores += bias.astype(np.float32)[:, :, None]
    largest = np.sqrt(np.einsum("bwd,bwd->bw", weights, weights).max(axis=1))[:, None]
    error = product_error(block.dim) + 4 * UNIT
    size = largest * np.sqrt(block.query_squares) + np.abs(bias).max(axis=1)[:, None]
    return rank(scores, absolute=2 * error * size + VANISHING)
