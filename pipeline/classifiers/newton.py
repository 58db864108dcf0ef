"""Newton's method for kernel softmax regression with a free bias, many episodes side by side.

Minimises C * sum_i CE(softmax(f_i), y_i) + 1/2 sum_w a_w^T G a_w over a (m, W) and b (W), f = G a + 1 b^T.
At the minimum a = r := C (y - p) and the columns of r add up to 0. The Hessian of the loss, C (diag(p_i) -
p_i p_i^T) for each support, is a diagonal less a product over the ways, so a step needs one m x m inverse
per way instead of one of m W x m W (Rasmussen and Williams 2006, section 3.5.1 and algorithm 3.3, here with
the bias eliminated exactly).
"""

from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import F64, Bool

# Armijo: a step must gain this part of what its slope promises; halved at most so often.
SUFFICIENT = 1e-4
MAX_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class State:
    """Where the iterations of B episodes stand.

    Attributes:
        gram: (B, m, m) float64.
        own: (m, W), 1 where a support is of a way.
        inverse_penalty: C.
        coefficients: (B, m, W), a.
        bias: (B, W), b.
        logits: (B, m, W), f.
        probabilities: (B, m, W), p.
        objective: (B,).
    """

    gram: F64
    own: F64
    inverse_penalty: float
    coefficients: F64
    bias: F64
    logits: F64
    probabilities: F64
    objective: F64

    @property
    def residual(self) -> F64:
        """(B, m, W), r = C (y - p)."""
        return self.inverse_penalty * (self.own - self.probabilities)

    def some(self, kept: Bool) -> "State":
        """The state of some of the episodes."""
        return State(
            self.gram[kept],
            self.own,
            self.inverse_penalty,
            self.coefficients[kept],
            self.bias[kept],
            self.logits[kept],
            self.probabilities[kept],
            self.objective[kept],
        )


def start(gram: F64, *, n_way: int, inverse_penalty: float) -> State:
    """All weights zero."""
    n_episodes, m, _ = gram.shape
    own = np.repeat(np.eye(n_way), m // n_way, axis=0)
    zeros = np.zeros((n_episodes, m, n_way))
    return _state(gram, own, inverse_penalty, zeros, zeros[:, 0], zeros)


def _state(gram: F64, own: F64, inverse_penalty: float, coefficients: F64, bias: F64, logits: F64) -> State:
    shifted = logits - logits.max(axis=2, keepdims=True)
    exponentials = np.exp(shifted)
    total = exponentials.sum(axis=2, keepdims=True)
    cross_entropy = (np.log(total[..., 0]) - (own * shifted).sum(axis=2)).sum(axis=1)
    penalty = (coefficients * (logits - bias[:, None])).sum(axis=(1, 2)) / 2
    return State(
        gram,
        own,
        inverse_penalty,
        coefficients,
        bias,
        logits,
        exponentials / total,
        inverse_penalty * cross_entropy + penalty,
    )


def gradient_norm(state: State) -> F64:
    """(B,), norm of the gradient with respect to weights (S^T (a - r)) and bias (sum of -r)."""
    residual = state.residual
    off = state.coefficients - residual
    squares = (off * np.matmul(state.gram, off)).sum(axis=(1, 2))
    squares = np.maximum(squares, 0.0) + np.square(residual.sum(axis=1)).sum(axis=1)
    return np.asarray(np.sqrt(squares))


def direction(state: State) -> tuple[F64, F64]:
    """The Newton step: changes of the coefficients (B, m, W) and of the bias (B, W).

    With Q the inverse of G (for all ways) plus the inverse of the loss's Hessian, the new coefficients are
    r + Q (f - G r - 1 b^T), where the new b makes their columns add up to 0.
    """
    n_way, m = state.own.shape[1], state.own.shape[0]
    residual = state.residual
    root = np.sqrt(state.inverse_penalty * state.probabilities).swapaxes(1, 2)  # (B, W, m)
    inner = root[..., None] * state.gram[:, None] * root[..., None, :]
    inner += np.eye(m)
    each = np.linalg.inv(inner)  # (B, W, m, m)
    each *= root[..., None]
    each *= root[..., None, :]  # (G + D_w^-1)^-1
    right = (state.logits - np.matmul(state.gram, residual)).swapaxes(1, 2)  # (B, W, m)
    columns = np.matmul(each, right[..., None])[..., 0]
    ones = each.sum(axis=3)  # (B, W, m)
    stacked = np.concatenate([columns.sum(axis=1)[:, None], ones], axis=1).swapaxes(1, 2)  # (B, m, 1 + W)
    solved = np.linalg.solve(each.sum(axis=1), stacked)
    # Q applied to the right side, and to a bias of 1 in each way.
    applied = columns - np.matmul(each, solved[:, None, :, :1])[..., 0]
    table = np.eye(n_way) * ones.sum(axis=2)[..., None] - np.matmul(ones, solved[..., 1:])  # (B, W, W)
    wanted = residual.sum(axis=1) + applied.sum(axis=2)
    # The table does not see a bias common to all ways: that one stays 0.
    gauge = np.trace(table, axis1=1, axis2=2)[:, None, None] / n_way**2
    bias = np.linalg.solve(table + gauge, wanted[..., None])  # (B, W, 1)
    shared = np.matmul(each, np.matmul(solved[..., 1:], bias)[:, None])[..., 0]
    coefficients = residual + (applied - ones * bias + shared).swapaxes(1, 2)
    return coefficients - state.coefficients, bias[..., 0] - state.bias


def line_search(state: State, coefficients: F64, bias: F64) -> State:
    """The state after the step, halved for each episode until the objective falls enough."""
    logits = np.matmul(state.gram, coefficients) + bias[:, None]
    slope = ((state.coefficients - state.residual) * logits).sum(axis=(1, 2))
    slope -= (state.coefficients.sum(axis=1) * bias).sum(axis=1)
    size = np.ones(len(bias))
    # Near the minimum the gain is below the objective's own rounding.
    slack = 1e-13 * np.abs(state.objective)
    for _ in range(MAX_HALVINGS):
        new = _state(
            state.gram,
            state.own,
            state.inverse_penalty,
            state.coefficients + size[:, None, None] * coefficients,
            state.bias + size[:, None] * bias,
            state.logits + size[:, None, None] * logits,
        )
        good = new.objective <= state.objective + SUFFICIENT * size * slope + slack
        if good.all():
            break
        size = np.where(good, size, size / 2)
    return new
