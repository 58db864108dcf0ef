"""Soft cosine attention over the support set."""

import numpy as np

from fsnl.cache.arrays import Floats
from fsnl.pipeline.classifiers.base import COSINE_TIE, Answer, Classifier, rank
from fsnl.pipeline.classifiers.block import Block
from fsnl.pipeline.classifiers.similarity import UNIT, cosines

# exp of anything within this is far from the ends of float32.
SAFE_EXPONENT = 60.0


def attention_scores(support: Floats, query: Floats, *, scale: float) -> Floats:
    """Soft cosine attention of each query over the support set, summed per class.

    Vinyals et al. 2016, eq. 1 and 2; Bharti et al. 2020, section 3.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.
        scale: factor on the cosine before the softmax over all W * K supports; 1.0 in the paper.

    Returns:
        (B, n, W) in their dtype, rows sum to 1.
    """
    weights = cosines(support, query)  # (B, n, W, K)
    weights *= np.asarray(scale, dtype=weights.dtype)
    weights -= weights.max(axis=(2, 3), keepdims=True)
    np.exp(weights, out=weights)
    per_class: Floats = weights.sum(axis=3)
    per_class /= per_class.sum(axis=2, keepdims=True)
    return per_class


def attention_answer(block: Block, *, scale: float) -> Answer:
    """The same from a block's cosines; the denominator, one for all classes, is left out."""
    weights = block.cosines * np.float32(scale)  # (B, W, K, n)
    if scale > SAFE_EXPONENT:
        weights -= weights.max(axis=(1, 2), keepdims=True)
    np.exp(weights, out=weights)
    # exp turns an error of its argument into a relative one; sums of positive terms keep that.
    rounding = scale * (block.product_rounding + 4 * UNIT) + (8 + block.n_shot) * UNIT
    return rank(weights.sum(axis=2), relative=2 * rounding)


def attention(scale: float = 1.0) -> Classifier:
    """The `attention` classifier."""
    return Classifier(
        name="attention" if scale == 1.0 else f"attention:{scale:g}",
        scores=lambda support, query: attention_scores(support, query, scale=scale),
        fast=lambda block: attention_answer(block, scale=scale),
        shared=frozenset({"cosines"}),
        tie=COSINE_TIE,
    )
