"""Ridge regression on the ways, in closed form."""

from functools import partial

import numpy as np

from fsnl.cache.arrays import F64, Floats
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.linear import Method, linear_answer, linear_scores


def ridge_scores(support: Floats, query: Floats, *, penalty: float) -> Floats:
    """Least squares on targets +1 (own way) and -1, an L2 penalty on the weights, a free intercept.

    Hoerl and Kennard 1970; for few-shot learning Bertinetto et al. 2019 (R2-D2), eq. 4 to 6. It is
    scikit-learn's RidgeClassifier(alpha=penalty), all ways and episodes at once.

    Args:
        support: (B, W, K, D) floating.
        query: (B, n, D) floating.
        penalty: LAMBDA, above 0.

    Returns:
        (B, n, W) in their dtype, computed in float64.
    """
    return linear_scores(support, query, method=_method(penalty))


def ridge_weights(support: F64, gram: F64, n_way: int, *, penalty: float) -> tuple[F64, F64]:
    """Weights (B, W, D) and bias (B, W).

    S^T (G + penalty I)^-1 y with y about its mean, or, where there are fewer dimensions than supports,
    (S^T S + penalty I)^-1 S^T y.

    Args:
        support: (B, m, D), centred.
        gram: (B, m, m), their inner products.
        n_way: W; the supports lie way by way.
        penalty: above 0.
    """
    n_episodes, m, dim = support.shape
    own = np.repeat(np.eye(n_way), m // n_way, axis=0)  # (m, W)
    targets = 2 * (own - 1 / n_way)  # the mean of +1 and -1 is 2 / W - 1
    bias = np.full((n_episodes, n_way), 2 / n_way - 1)
    if m <= dim:
        every = np.broadcast_to(targets, (n_episodes, m, n_way))
        # Neither side sees the direction (1, ..., 1): filled in, it cannot make the matrix singular.
        filled = gram + np.trace(gram, axis1=1, axis2=2)[:, None, None] / m**2 + penalty * np.eye(m)
        coefficients = np.linalg.solve(filled, every)
        return np.matmul(coefficients.swapaxes(1, 2), support), bias
    transposed = support.swapaxes(1, 2)
    scatter = np.matmul(transposed, support) + penalty * np.eye(dim)
    weights = np.linalg.solve(scatter, np.matmul(transposed, targets))  # (B, D, W)
    return weights.swapaxes(1, 2), bias


def _method(penalty: float) -> Method:
    name = "ridge" if penalty == 1.0 else f"ridge:{penalty:g}"
    return Method(name, 1 / penalty, partial(ridge_weights, penalty=penalty))


def ridge(penalty: float = 1.0) -> Classifier:
    """The `ridge` classifier."""
    method = _method(penalty)
    return Classifier(
        name=method.name,
        scores=partial(ridge_scores, penalty=penalty),
        fast=partial(linear_answer, method=method),
        shared=frozenset({"centred"}),
        unit=1.0,
    )
