"""Multinomial logistic regression, fitted to many episodes at once by Newton's method."""

from functools import partial

import numpy as np

from fsnl.cache.arrays import F64, I64, Floats
from fsnl.cache.errors import ScoringError
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.linear import Method, linear_answer, linear_scores
from fsnl.pipeline.classifiers.newton import direction, gradient_norm, line_search, start

# Fitted when the gradient's norm is below this part of its norm at zero weights.
GRADIENT_TOLERANCE = 1e-8
MAX_STEPS = 100

_TOO_LARGE = (
    f"logistic regression did not converge in {MAX_STEPS} Newton steps: the embeddings are too large "
    "or C is too great; try --transform l2 or zscore:train, or a smaller C"
)


def logistic_scores(support: Floats, query: Floats, *, inverse_penalty: float) -> Floats:
    """Logits of softmax regression: C * sum of cross entropies + 1/2 |weights|^2, a free intercept.

    It is scikit-learn's LogisticRegression(C=inverse_penalty) for three and more ways (for two that one
    fits a single weight vector, which halves the penalty); used on frozen features by Chen et al. 2019
    ("Baseline") and Tian et al. 2020. Fitted in float64 until the gradient's norm is below
    GRADIENT_TOLERANCE of its norm at zero weights.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.
        inverse_penalty: C, above 0.

    Returns:
        (B, n, W) in their dtype, computed in float64.
    """
    return linear_scores(support, query, method=_method(inverse_penalty))


def logistic_weights(support: F64, gram: F64, n_way: int, *, inverse_penalty: float) -> tuple[F64, F64]:
    """Weights (B, W, D) and bias (B, W); by the representer theorem the weights are sums of supports.

    Args:
        support: (B, m, D), centred.
        gram: (B, m, m), their inner products.
        n_way: W; the supports lie way by way.
        inverse_penalty: C, above 0.

    Raises:
        ScoringError: no convergence, or a gradient beyond float64.
    """
    n_episodes, m, _ = gram.shape
    coefficients = np.zeros((n_episodes, m, n_way))
    bias = np.zeros((n_episodes, n_way))
    left: I64 = np.arange(n_episodes)
    state = start(gram, n_way=n_way, inverse_penalty=inverse_penalty)
    with np.errstate(over="ignore", invalid="ignore"):
        at_zero = gradient_norm(state)
    if not np.isfinite(at_zero).all():
        raise ScoringError(_TOO_LARGE)
    # The gradient by the bias is a sum of m probabilities, with their rounding.
    enough = np.maximum(GRADIENT_TOLERANCE * at_zero, 1e-14 * m * inverse_penalty)
    for _ in range(MAX_STEPS):
        going = ~(gradient_norm(state) <= enough)  # NaN too
        if not going.all():
            coefficients[left], bias[left] = state.coefficients, state.bias
            left, enough, state = left[going], enough[going], state.some(going)
        if not left.size:
            break
        state = line_search(state, *direction(state))
    if left.size:
        raise ScoringError(_TOO_LARGE)
    return np.matmul(coefficients.swapaxes(1, 2), support), bias


def _method(inverse_penalty: float) -> Method:
    name = "logistic" if inverse_penalty == 1.0 else f"logistic:{inverse_penalty:g}"
    return Method(name, inverse_penalty, partial(logistic_weights, inverse_penalty=inverse_penalty))


def logistic(inverse_penalty: float = 1.0) -> Classifier:
    """The `logistic` classifier."""
    method = _method(inverse_penalty)
    return Classifier(
        name=method.name,
        scores=partial(logistic_scores, inverse_penalty=inverse_penalty),
        fast=partial(linear_answer, method=method),
        shared=frozenset({"centred"}),
        unit=1.0,
    )
