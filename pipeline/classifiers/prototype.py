"""The class of the nearest prototype by squared L2."""

import numpy as np

from fsnl.cache.arrays import Floats
from fsnl.pipeline.classifiers.base import Answer, Classifier, rank
from fsnl.pipeline.classifiers.block import Block
from fsnl.pipeline.classifiers.similarity import UNIT, VANISHING, squared_distances


def prototype_scores(support: Floats, query: Floats) -> Floats:
    """Minus the squared L2 distance of each query to each class mean.

    Snell et al. 2017, eq. 1 and 2. SimpleShot (Wang et al. 2019) is this after the transforms `none` (UN),
    `l2` (L2N) or `center:train,l2` (CL2N).

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.

    Returns:
        (B, n, W) in their dtype, at most 0; computed from differences in float64.
    """
    prototypes = support.mean(axis=2, dtype=np.float64)
    return np.asarray(-squared_distances(prototypes, query), dtype=query.dtype)


def prototype_answer(block: Block) -> Answer:
    """The same up to the query's own norm, 2 <q, c> - |c|^2, about the split's centre where it has one."""
    prototypes = block.centred_prototypes
    squares = np.einsum("bwd,bwd->bw", prototypes, prototypes)
    scores = 2 * block.centred_prototype_products - squares[:, :, None]
    # The products' error is relative to |q| |s|, at most the mean of the squares, for every support s.
    rounding = block.product_rounding + (4 + block.n_shot) * UNIT
    absolute = 4 * rounding * (block.query_squares + block.largest_support_square) + VANISHING
    return rank(scores, absolute=absolute)


def prototype() -> Classifier:
    """The `prototype` classifier."""
    return Classifier(
        name="prototype",
        scores=prototype_scores,
        fast=prototype_answer,
        shared=frozenset({"centred_prototype_products"}),
    )
