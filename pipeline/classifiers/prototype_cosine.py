"""The class of the prototype with the largest cosine to the query."""

import numpy as np

from fsnl.cache.arrays import Floats
from fsnl.pipeline.classifiers.base import COSINE_TIE, Answer, Classifier, rank
from fsnl.pipeline.classifiers.block import Block
from fsnl.pipeline.classifiers.similarity import UNIT, cosines


def prototype_cosine_scores(support: Floats, query: Floats) -> Floats:
    """Cosine of each query to each class mean.

    Prototypes as in Snell et al. 2017, compared as in Gidaris and Komodakis 2018.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.

    Returns:
        (B, n, W) in their dtype, in [-1, 1]; 0 where query or prototype is zero.
    """
    prototypes = support.mean(axis=2, dtype=np.float64).astype(support.dtype)
    return cosines(prototypes[:, :, None], query)[..., 0]


def prototype_cosine_answer(block: Block) -> Answer:
    """The same from a block's products; near-zero prototypes, of supports that cancel, are close calls."""
    prototypes = block.prototypes
    squares = np.einsum("bwd,bwd->bw", prototypes, prototypes)  # (B, W)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = 1 / np.sqrt(squares)
        scores = block.prototype_products * inverse[:, :, None]
        scores *= block.inverse_query_norms[:, None]
        # The products' error is relative to the supports' norms, which may be far above the prototype's.
        largest = block.rows.squares[block.support_rows].max(axis=2)  # (B, W)
        stretch = (np.sqrt(largest) * inverse).max(axis=1)
        rounding = block.product_rounding + (8 + block.n_shot) * UNIT
        return rank(scores, absolute=4 * rounding * stretch[:, None])


def prototype_cosine() -> Classifier:
    """The `prototype-cosine` classifier."""
    return Classifier(
        name="prototype-cosine",
        scores=prototype_cosine_scores,
        fast=prototype_cosine_answer,
        shared=frozenset({"prototype_products"}),
        unit=1.0,
        tie=COSINE_TIE,
    )
