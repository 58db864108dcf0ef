"""Intervals around an accuracy, and what each of them is an interval for.

Over the episodes: Student's t on the episodes' accuracies. It says how well the sampler was averaged on
these images ("closed" in Lafargue et al. 2024, "Oops, I Sampled it Again"), or, where no two episodes share
an image, what other images of these classes would give ("open").

Over the classes: the delete-one-class jackknife (Efron and Stein 1981), which says what another draw of
classes would give.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import F64, I64
from fsnl.pipeline.student_t import outside, two_sided

CONFIDENCE = 0.95
# The jackknife is called doubtful from this share of variance that drawing the episodes alone explains.
DOUBTFUL_NOISE = 0.5
# A variance of accuracies below this is rounding.
ROUNDING = 1e-24
ONE_EPISODE = "one episode has no spread"


@dataclass(frozen=True, slots=True)
class EpisodeInterval:
    """Interval over episodes: closed, or open where they were drawn without replacement.

    Attributes:
        sd: standard deviation of the episodes' accuracies, n - 1 in the denominator; None for one episode.
        half_width: of the 95 % interval by Student's t with n - 1 degrees of freedom; likewise.
        reason: why they are None.
    """

    sd: float | None
    half_width: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ClassInterval:
    """Interval over classes.

    Attributes:
        half_width: of the 95 % interval by the jackknife, Student's t with C - 1 degrees of freedom.
        standard_error: square root of the jackknife's variance.
        degrees: C - 1.
        reason: why they are None, or what makes them doubtful; None where all is well.
    """

    half_width: float | None
    standard_error: float | None
    degrees: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class ClassDeletions:
    """For each class that occurs, the episodes that leave it out.

    Attributes:
        classes: (C,) int64, the classes that occur in the episodes, ascending.
        ways: (E, W) int64, position in `classes` of each way's class.
        n_without: (C,) int64, episodes that do not hold the class.
        noise: the jackknife's variance where classes do not matter at all, over that of one episode.
    """

    classes: I64
    ways: I64
    n_without: I64
    noise: float


def half_width(standard_error: float, degrees: float) -> float:
    """Of the 95 % interval by Student's t.

    >>> half_width(1.0, 2)
    4.30265...
    """
    return two_sided(CONFIDENCE, degrees) * standard_error


def p_value(difference: float, standard_error: float, degrees: float) -> float:
    """Two-sided, of a difference that Student's t would have with a true difference of 0.

    >>> p_value(2.0, 1.0, 2)  # the interval ends at 4.3, so far from significant
    0.18350...
    """
    if standard_error == 0:
        return 1.0 if difference == 0 else 0.0
    return outside(abs(difference) / standard_error, degrees)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's correction (1979): p values that hold for all tests of a family together.

    The i-th smallest of m is multiplied by m - i + 1, at most 1, and is no smaller than the one before.

    Args:
        p_values: one per test; None where there was none, which is not counted.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    present = [(p, i) for i, p in enumerate(p_values) if p is not None]
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(sorted(present)):
        largest = max(largest, min(1.0, (len(present) - rank) * p))
        corrected[i] = largest
    return corrected


def episode_interval(accuracies: F64) -> EpisodeInterval:
    """Student's t interval over episodes.

    Args:
        accuracies: (E,) one per episode, or differences of two paired runs.

    Returns:
        The interval's half width about the mean.

    >>> episode_interval(np.array([0.5, 0.7, 0.9])).half_width  # t(2) = 4.3027, sd 0.2
    0.49682...
    """
    n = len(accuracies)
    if n < 2:
        return EpisodeInterval(sd=None, half_width=None, reason=ONE_EPISODE)
    sd = float(accuracies.std(ddof=1))
    return EpisodeInterval(sd=sd, half_width=half_width(sd / n**0.5, n - 1), reason=None)


def class_interval(accuracies: F64, classes: I64) -> ClassInterval:
    """Delete-one-class jackknife interval about the mean accuracy.

    With theta(c) the mean over the episodes without class c, its variance is
    (C - 1) / C * sum of (theta(c) - mean theta)^2, and the half width t(C - 1) times its root.

    Args:
        accuracies: (E,) one per episode.
        classes: (E, W) int64, the classes of each episode.

    Returns:
        The interval; without a width where some class is in every episode, and with a reason beside the
        width where the drawing of the episodes explains more than half of the variance.

    >>> pairs = np.array([[0, 1], [0, 2], [1, 2]])
    >>> class_interval(np.array([0.5, 0.6, 0.7]), pairs).standard_error  # sqrt(2/3 * (0.1**2 + 0 + 0.1**2))
    0.11547...
    """
    deletions = class_deletions(classes)
    means = means_without(deletions, accuracies)
    variance = float(accuracies.var(ddof=1)) if len(accuracies) > 1 else 0.0
    return jackknife_interval(deletions, means, noise=deletions.noise * variance)


def class_deletions(classes: I64) -> ClassDeletions:
    """Which episodes leave which class out.

    Args:
        classes: (E, W) int64, the classes of each episode, each at most once in it.
    """
    occurring, ways = np.unique(classes, return_inverse=True)
    ways = ways.reshape(classes.shape)
    n_classes, n_episodes = len(occurring), len(classes)
    n_without = n_episodes - np.bincount(ways.ravel(), minlength=n_classes)
    noise = float("nan")
    if (n_without > 0).all():
        # With episodes of variance 1 and no more: Var theta(c) = 1 / n(c), and an episode enters the sum of
        # all theta with the sum of 1 / n(c) over the classes that it leaves out.
        weights = 1 / n_without
        in_sum = weights.sum() - weights[ways].sum(axis=1)  # (E,)
        noise = float((n_classes - 1) / n_classes * (weights.sum() - (in_sum**2).sum() / n_classes))
    return ClassDeletions(classes=occurring, ways=ways, n_without=n_without, noise=noise)


def means_without(deletions: ClassDeletions, accuracies: F64) -> F64:
    """Mean over the episodes without each class, theta(c).

    Args:
        deletions: of the episodes.
        accuracies: (E,) one per episode.

    Returns:
        (C,) float64, NaN for a class that is in every episode.
    """
    n_way = deletions.ways.shape[1]
    within = np.bincount(
        deletions.ways.ravel(), weights=np.repeat(accuracies, n_way), minlength=len(deletions.classes)
    )
    means = np.full(len(within), np.nan)
    np.divide(accuracies.sum() - within, deletions.n_without, out=means, where=deletions.n_without > 0)
    return means


def jackknife_interval(deletions: ClassDeletions, means: F64, *, noise: float) -> ClassInterval:
    """The interval of `class_interval`, from theta(c) or from differences of two runs' theta(c).

    Args:
        deletions: of the episodes.
        means: (C,) from `means_without`, or their differences.
        noise: the variance expected from drawing the episodes alone.
    """
    n_classes = len(means)
    always = int((deletions.n_without == 0).sum())
    if always:
        which = "every class is" if always == n_classes else f"{always} of {n_classes} classes occur"
        impossible = f"{which} in every episode, so the classes cannot be left out in turn"
        return ClassInterval(half_width=None, standard_error=None, degrees=n_classes - 1, reason=impossible)
    variance = (n_classes - 1) / n_classes * float(((means - means.mean()) ** 2).sum())
    reason = None
    if noise > max(DOUBTFUL_NOISE * variance, ROUNDING):
        reason = (
            f"doubtful: most of its variance comes from drawing {len(deletions.ways):,} episodes, "
            f"not from the {n_classes} classes"
        )
    error = variance**0.5
    width = half_width(error, n_classes - 1)
    return ClassInterval(half_width=width, standard_error=error, degrees=n_classes - 1, reason=reason)
