"""The class of the single largest attention weight: nearest neighbour by cosine."""

import numpy as np

from fsnl.cache.arrays import F32
from fsnl.pipeline.classifiers.attention import COSINE_MARGIN
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.similarity import cosines


def attention_max_scores(support: F32, query: F32) -> F32:
    """Largest cosine of each query to a class's supports.

    The softmax keeps the order of the cosines, so the class of the largest attention weight, which is what
    the released code of Bharti et al. 2020 answers, is that of the largest cosine.

    Args:
        support: (B, W, K, D) float32.
        query: (B, n, D) float32.

    Returns:
        (B, n, W) float32 in [-1, 1].
    """
    return attention_max_from_cosines(cosines(support, query))


def attention_max_from_cosines(cosine: F32) -> F32:
    """The same from (B, n, W, K) cosines."""
    return np.asarray(cosine.max(axis=3))


def attention_max() -> Classifier:
    """The `attention-max` classifier."""
    return Classifier(
        name="attention-max",
        scores=attention_max_scores,
        from_cosines=attention_max_from_cosines,
        margin=COSINE_MARGIN,
    )
