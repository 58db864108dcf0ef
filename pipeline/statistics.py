"""Intervals around an accuracy, and what each of them is an interval for."""

from dataclasses import dataclass

from scipy.special import stdtrit

from fsnl.cache.arrays import F64

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class ClosedInterval:
    """How well the episodes were averaged, on these images and classes alone.

    Attributes:
        sd: standard deviation of the episodes' accuracies, n - 1 in the denominator; None for one episode.
        half_width: of the 95 % interval by Student's t with n - 1 degrees of freedom; likewise.
        reason: why they are None.
    """

    sd: float | None
    half_width: float | None
    reason: str | None


def closed_interval(accuracies: F64) -> ClosedInterval:
    """Student's t interval over episodes drawn with replacement from one split.

    "Closed" in the sense of Lafargue et al. 2024 ("Oops, I Sampled it Again"): it shrinks as more episodes
    are drawn, however few the images, so it says nothing about other images or other classes.

    Args:
        accuracies: (E,) in [0, 1], one per episode.

    Returns:
        The interval's half width about the mean.

    >>> import numpy as np
    >>> closed_interval(np.array([0.5, 0.7, 0.9])).half_width  # t(2) = 4.3027, sd 0.2
    0.49682...
    """
    n = len(accuracies)
    if n < 2:
        return ClosedInterval(sd=None, half_width=None, reason="one episode has no spread")
    sd = float(accuracies.std(ddof=1))
    quantile = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return ClosedInterval(sd=sd, half_width=quantile * sd / n**0.5, reason=None)
