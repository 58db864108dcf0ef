"""The difference of two runs' accuracies: over the same episodes, or over others."""

from dataclasses import dataclass

from fsnl.cache.arrays import F64
from fsnl.pipeline.statistics import ONE_EPISODE, half_width, p_value


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two runs, and how far it can be told from 0 on these episodes.

    Attributes:
        difference: mean accuracy of the first less that of the second.
        variance: of the difference of one episode, n - 1 in the denominator; None where not paired.
        half_width: of the 95 % interval over episodes; None where one run has a single episode.
        p: two-sided p value of no difference; likewise.
        wins, ties, losses: episodes in which the first is better, equal, worse; None where not paired.
        correlation: Pearson's, of the two accuracies over the episodes; None where one of them is constant.
        reason: why half_width and p are None.
    """

    difference: float
    variance: float | None
    half_width: float | None
    p: float | None
    wins: int | None
    ties: int | None
    losses: int | None
    correlation: float | None
    reason: str | None


def paired_difference(first: F64, second: F64) -> Difference:
    """Student's t on the differences, episode by episode.

    Args:
        first, second: (E,) accuracies of the same episodes, E - 1 degrees of freedom.

    >>> import numpy as np
    >>> paired_difference(np.array([0.5, 0.7, 0.9]), np.array([0.4, 0.7, 0.8])).half_width
    0.14342...
    """
    n = len(first)
    differences = first - second
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    mean = float(first.mean() - second.mean())
    width = p = variance = None
    if n > 1:
        variance = float(differences.var(ddof=1))
        error = (variance / n) ** 0.5
        width, p = half_width(error, n - 1), p_value(mean, error, n - 1)
    return Difference(
        difference=mean,
        variance=variance,
        half_width=width,
        p=p,
        wins=wins,
        ties=n - wins - losses,
        losses=losses,
        correlation=_correlation(first, second),
        reason=None if n > 1 else ONE_EPISODE,
    )


def unpaired_difference(first: F64, second: F64) -> Difference:
    """Welch's t on the means of episodes that have nothing to do with each other.

    Args:
        first: (E1,) accuracies.
        second: (E2,) accuracies.
    """
    mean = float(first.mean() - second.mean())
    width = p = None
    if min(len(first), len(second)) > 1:
        shares = [float(a.var(ddof=1)) / len(a) for a in (first, second)]
        total = sum(shares)
        # Welch and Satterthwaite; without any variance the degrees do not matter.
        spent = sum(s**2 / (len(a) - 1) for s, a in zip(shares, (first, second), strict=True))
        degrees = total**2 / spent if spent else 1.0
        width, p = half_width(total**0.5, degrees), p_value(mean, total**0.5, degrees)
    return Difference(
        difference=mean,
        variance=None,
        half_width=width,
        p=p,
        wins=None,
        ties=None,
        losses=None,
        correlation=None,
        reason=None if width is not None else ONE_EPISODE,
    )


def _correlation(first: F64, second: F64) -> float | None:
    a, b = first - first.mean(), second - second.mean()
    spreads = float(a @ a) * float(b @ b)
    # Both spreads of constant accuracies are 0, but for rounding.
    return float(a @ b) / spreads**0.5 if spreads > 1e-24 * len(first) ** 2 else None
