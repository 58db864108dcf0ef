"""Similarities between the queries and supports of a block of episodes, shared by the classifiers."""

import numpy as np

from fsnl.cache.arrays import F32


def inverse_norms(vectors: F32) -> F32:
    """1 / |v| over the last axis, summed in float64; 0 for a zero vector, whose cosine is then 0.

    Args:
        vectors: (..., D) floating.

    Returns:
        (...,) in the dtype of `vectors`.
    """
    squares = np.einsum("...d,...d->...", vectors, vectors, dtype=np.float64)
    norms = np.sqrt(squares)
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return np.asarray(inverse, dtype=vectors.dtype)


def products(support: F32, query: F32) -> F32:
    """Inner product of each query with each support of its episode.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.

    Returns:
        (B, n, W, K) in their dtype.
    """
    n_episodes, n_way, n_shot, dim = support.shape
    flat = support.reshape(n_episodes, n_way * n_shot, dim)
    product: F32 = np.matmul(query, flat.swapaxes(1, 2))
    return product.reshape(n_episodes, -1, n_way, n_shot)


def cosines(support: F32, query: F32) -> F32:
    """Cosine of each query with each support of its episode.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.

    Returns:
        (B, n, W, K) in their dtype.
    """
    scaled = products(support, query)
    scaled *= inverse_norms(query)[:, :, None, None]
    scaled *= inverse_norms(support)[:, None, :, :]
    return scaled
