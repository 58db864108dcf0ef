"""The class of the single largest attention weight: nearest neighbour by cosine."""

import numpy as np

from fsnl.cache.arrays import Floats
from fsnl.pipeline.classifiers.base import COSINE_TIE, Answer, Classifier, rank
from fsnl.pipeline.classifiers.block import Block
from fsnl.pipeline.classifiers.similarity import UNIT, cosines


def attention_max_scores(support: Floats, query: Floats) -> Floats:
    """Largest cosine of each query to a class's supports.

    The softmax keeps the order of the cosines, so the class of the largest attention weight, which is what
    the released code of Bharti et al. 2020 answers, is that of the largest cosine.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.

    Returns:
        (B, n, W) in their dtype, in [-1, 1].
    """
    return np.asarray(cosines(support, query).max(axis=3))


def attention_max_answer(block: Block) -> Answer:
    """The same from a block's cosines."""
    rounding = block.product_rounding + 4 * UNIT
    return rank(block.cosines.max(axis=2), absolute=2 * rounding)


def attention_max() -> Classifier:
    """The `attention-max` classifier."""
    return Classifier(
        name="attention-max",
        scores=attention_max_scores,
        fast=attention_max_answer,
        shared=frozenset({"cosines"}),
        unit=1.0,
        tie=COSINE_TIE,
    )
