"""The majority among the nearest supports by squared L2."""

import numpy as np

from fsnl.cache.arrays import F64, I64, Floats
from fsnl.pipeline.classifiers.base import TIE, Answer, Classifier, rank
from fsnl.pipeline.classifiers.block import Block
from fsnl.pipeline.classifiers.faiss_search import nearest
from fsnl.pipeline.classifiers.nearest_neighbour import indistinct
from fsnl.pipeline.classifiers.similarity import UNIT, product_error, squared_distances


def k_nearest_scores(support: Floats, query: Floats, *, n_neighbours: int) -> Floats:
    """Votes of the nearest supports; the fraction breaks ties of votes by the summed squared distance.

    Cover and Hart 1967. Of supports at equal distance the lowest way, then the lowest shot, is nearer; of
    classes with equal votes the one whose neighbours lie at the least summed squared distance wins, then
    the lowest way.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.
        n_neighbours: 1..W * K.

    Returns:
        (B, n, W) in their dtype: votes, plus a fraction in [0, 1/2] for classes with votes.
    """
    n_episodes, n_way, n_shot, dim = support.shape
    distances = squared_distances(support.reshape(n_episodes, -1, dim), query)
    positions = _first_by_distance(distances, n_neighbours)
    kept = np.take_along_axis(distances, positions, axis=2)
    scores = _votes(kept, positions // n_shot, n_way=n_way)
    return np.asarray(scores.swapaxes(1, 2), dtype=query.dtype)


def _first_by_distance(distances: F64, n_neighbours: int) -> I64:
    """Positions of the nearest; distances that differ by rounding are equal, the lowest position first."""
    order = distances.argsort(axis=2, kind="stable")
    ordered = np.take_along_axis(distances, order, axis=2)
    steps = ordered[..., 1:] > ordered[..., :-1] * (1 + TIE)
    group = np.concatenate([np.zeros((*order.shape[:2], 1), np.int64), steps.cumsum(axis=2)], axis=2)
    by_position = np.empty_like(group)
    np.put_along_axis(by_position, order, group, axis=2)
    return np.asarray(by_position.argsort(axis=2, kind="stable")[..., :n_neighbours], dtype=np.int64)


def _votes(distances: F64, ways: I64, *, n_way: int) -> F64:
    """(B, n, N) distances and ways of the neighbours to (B, W, n) scores."""
    total = distances.sum(axis=2)
    total[total == 0] = 1.0
    scores = np.empty((len(ways), n_way, ways.shape[1]))
    for way in range(n_way):
        mine = ways == way
        votes = mine.sum(axis=2)
        fraction = 0.5 * (1 - np.where(mine, distances, 0.0).sum(axis=2) / total)
        scores[:, way] = np.where(votes > 0, votes + fraction, 0.0)
    return scores


def k_nearest_answer(block: Block, *, n_neighbours: int) -> Answer:
    """The same by exact search with FAISS in float32.

    Close where rounding could have exchanged the last neighbour and the first that is left out, or could
    have decided between two classes of as many votes.
    """
    n_supports = block.n_way * block.n_shot
    distances = block.distances.reshape(*block.query_rows.shape, n_supports)
    n_found = min(n_neighbours + 1, n_supports)
    distances, positions = nearest(distances, n_neighbours=n_found)
    ways = positions[..., :n_neighbours] // block.n_shot
    kept = distances[..., :n_neighbours].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        error = product_error(block.dim) + 4 * UNIT
        each = error * (block.query_squares + block.largest_support_square + kept[..., -1])
        total = kept.sum(axis=2)
        # Of the fraction; where the total is no more than rounding, more than the fraction itself.
        absolute = n_neighbours * each / (total + 1e-30)
        answer = rank(_votes(kept, ways, n_way=block.n_way), absolute=absolute)
    close = answer.close | (positions < 0).any(axis=2)
    if n_found > n_neighbours:
        close |= indistinct(distances[..., -2], distances[..., -1], block)
    return Answer(ways=answer.ways, close=close)


def k_nearest(n_neighbours: int) -> Classifier:
    """The `knn:N` classifier."""
    return Classifier(
        name=f"knn:{n_neighbours}",
        scores=lambda support, query: k_nearest_scores(support, query, n_neighbours=n_neighbours),
        fast=lambda block: k_nearest_answer(block, n_neighbours=n_neighbours),
        shared=frozenset({"distances"}),
        min_supports=n_neighbours,
    )
