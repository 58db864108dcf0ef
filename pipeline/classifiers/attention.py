"""Soft cosine attention over the support set."""

import numpy as np

from fsnl.cache.arrays import F32
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.similarity import cosines

# Rounding of a float32 cosine, with room: about a hundred units in the last place.
COSINE_MARGIN = 8e-6


def attention_scores(support: F32, query: F32, *, scale: float) -> F32:
    """Soft cosine attention of each query over the support set, summed per class.

    Vinyals et al. 2016, eq. 1 and 2; Bharti et al. 2020, section 3.

    Args:
        support: (B, W, K, D) float32.
        query: (B, n, D) float32.
        scale: factor on the cosine before the softmax; 1.0 in the paper.

    Returns:
        (B, n, W) float32, rows sum to 1.
    """
    return attention_from_cosines(cosines(support, query), scale=scale)


def attention_from_cosines(cosine: F32, *, scale: float) -> F32:
    """The same from (B, n, W, K) cosines: softmax over all W * K supports, weights summed per class."""
    weights = cosine * np.asarray(scale, dtype=cosine.dtype)
    weights -= weights.max(axis=(2, 3), keepdims=True)
    np.exp(weights, out=weights)
    per_class: F32 = weights.sum(axis=3)  # (B, n, W)
    per_class /= per_class.sum(axis=2, keepdims=True)
    return per_class


def attention(scale: float = 1.0) -> Classifier:
    """The `attention` classifier."""
    return Classifier(
        name="attention" if scale == 1.0 else f"attention:{scale:g}",
        scores=lambda support, query: attention_scores(support, query, scale=scale),
        from_cosines=lambda cosine: attention_from_cosines(cosine, scale=scale),
        margin=COSINE_MARGIN * max(1.0, scale),
    )
