"""The class of the nearest support by squared L2."""

import numpy as np

from fsnl.cache.arrays import F32, F64, I64, Bool, Floats
from fsnl.pipeline.classifiers.base import TIE, Answer, Classifier
from fsnl.pipeline.classifiers.block import Block
from fsnl.pipeline.classifiers.faiss_search import nearest
from fsnl.pipeline.classifiers.similarity import UNIT, VANISHING, product_error, squared_distances


def nearest_neighbour_scores(support: Floats, query: Floats) -> Floats:
    """One-hot answer of the 1-nearest-neighbour rule, from differences in float64.

    Bharti et al. 2020, section 3. Equal distances go to the lowest way.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.

    Returns:
        (B, n, W) in their dtype, 1 for the class of the nearest support and 0 for the others.
    """
    n_episodes, n_way, n_shot, dim = support.shape
    distances = squared_distances(support.reshape(n_episodes, -1, dim), query)
    ways = first_within_ties(distances) // n_shot
    return np.asarray(ways[..., None] == np.arange(n_way), dtype=query.dtype)


def first_within_ties(distances: F64) -> I64:
    """The first of (..., m) distances that is the least but for rounding, (...,) int64."""
    least = distances.min(axis=-1, keepdims=True)
    return np.asarray((distances <= least * (1 + TIE)).argmax(axis=-1), dtype=np.int64)


def nearest_neighbour_answer(block: Block) -> Answer:
    """The same by exact search with FAISS in float32; close where the nearest two are within rounding."""
    n_supports = block.n_way * block.n_shot
    distances = block.distances.reshape(*block.query_rows.shape, n_supports)
    distances, positions = nearest(distances, n_neighbours=min(2, n_supports))
    ways = positions[..., 0] // block.n_shot
    if n_supports == 1:
        return Answer(ways=ways, close=np.zeros(ways.shape, dtype=np.bool_))
    close = indistinct(distances[..., 0], distances[..., 1], block)
    close |= positions[..., 1] < 0
    return Answer(ways=ways, close=close)


def indistinct(near: F32, far: F32, block: Block) -> Bool:
    """(B, n), where rounding could have put a FAISS distance before another, `near` before `far`."""
    error = product_error(block.dim) + 4 * UNIT
    absolute = 2 * error * (block.query_squares + block.largest_support_square) + VANISHING
    with np.errstate(invalid="ignore"):  # FAISS's largest float for what it did not find
        return np.asarray(~(far - near > 2 * error * far + absolute))


def nearest_neighbour() -> Classifier:
    """The `1nn` classifier."""
    return Classifier(
        name="1nn",
        scores=nearest_neighbour_scores,
        fast=nearest_neighbour_answer,
        shared=frozenset({"distances"}),
    )
