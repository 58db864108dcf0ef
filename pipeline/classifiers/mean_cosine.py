"""The class whose supports have the largest mean cosine to the query."""

import numpy as np

from fsnl.cache.arrays import Floats
from fsnl.pipeline.classifiers.base import COSINE_TIE, Answer, Classifier, rank
from fsnl.pipeline.classifiers.block import Block
from fsnl.pipeline.classifiers.similarity import UNIT, cosines


def mean_cosine_scores(support: Floats, query: Floats) -> Floats:
    """Mean cosine of each query to a class's supports.

    The "centroid" attention in the released code of Bharti et al. 2020: it averages the supports after
    normalising each, and does not normalise the average again, so a class whose supports point apart
    scores lower; compare `prototype-cosine`.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.

    Returns:
        (B, n, W) in their dtype, in [-1, 1].
    """
    return np.asarray(cosines(support, query).mean(axis=3))


def mean_cosine_answer(block: Block) -> Answer:
    """The same from a block's cosines."""
    rounding = block.product_rounding + (4 + block.n_shot) * UNIT
    return rank(block.cosines.mean(axis=2), absolute=2 * rounding)


def mean_cosine() -> Classifier:
    """The `mean-cosine` classifier."""
    return Classifier(
        name="mean-cosine",
        scores=mean_cosine_scores,
        fast=mean_cosine_answer,
        shared=frozenset({"cosines"}),
        unit=1.0,
        tie=COSINE_TIE,
    )
