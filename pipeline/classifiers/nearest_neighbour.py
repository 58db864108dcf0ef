"""The class of the nearest support by squared L2."""

import numpy as np

from fsnl.cache.arrays import F32
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.faiss_search import nearest


def nearest_neighbour_scores(support: F32, query: F32) -> F32:
    """One-hot answer of the 1-nearest-neighbour rule, by exact search with FAISS.

    Bharti et al. 2020, section 3. Supports lie way by way, so equal distances go to the lowest way, then
    to the lowest shot.

    Args:
        support: (B, W, K, D) float32, finite.
        query: (B, n, D) float32, finite.

    Returns:
        (B, n, W) float32, 1 for the class of the nearest support and 0 for the others.
    """
    n_episodes, n_way, n_shot, dim = support.shape
    scores = np.zeros((n_episodes, query.shape[1], n_way), dtype=np.float32)
    flat = np.ascontiguousarray(support).reshape(n_episodes, n_way * n_shot, dim)
    for one_support, one_query, one_scores in zip(flat, query, scores, strict=True):
        _, rows = nearest(one_support, one_query, n_neighbours=1)
        np.put_along_axis(one_scores, rows // n_shot, np.float32(1), axis=1)
    return scores


def nearest_neighbour() -> Classifier:
    """The `1nn` classifier."""
    return Classifier(name="1nn", scores=nearest_neighbour_scores)
