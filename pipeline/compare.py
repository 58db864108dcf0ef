"""Runs against each other: paired where they answered the same queries, which shows far smaller differences.

Two runs on the same queries share most of what makes an episode easy or hard. The spread of the difference,
episode by episode, is then much less than that of either accuracy, and so is its interval. The same holds
for the classes: the jackknife is taken of the difference.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from fsnl.cache.arrays import F64, I64
from fsnl.cache.result_file import ResultFile
from fsnl.cache.schema import RunSummary
from fsnl.pipeline.differences import Difference, paired_difference, unpaired_difference
from fsnl.pipeline.statistics import (
    CONFIDENCE,
    ClassDeletions,
    ClassInterval,
    class_deletions,
    holm,
    jackknife_interval,
    means_without,
    p_value,
)

Winner: TypeAlias = Literal["a", "b", "equal", "undecided", "unknown"]
NO_CLASSES = "accuracies per task do not say which classes the tasks hold"
OTHER_CLASSES = "the episodes of the two runs do not hold the same classes"


@dataclass(frozen=True, slots=True)
class EpisodeAccuracies:
    """One run, episode by episode, whether scored here or published by somebody else.

    Attributes:
        source: the file it comes from.
        method: what it is called there: the classifier, or the published name.
        data_set: runs are compared where this agrees: `labels_sha256`, or the published data set's name.
        pairing: where this agrees too, episode i of both has the same queries.
        sampling: `with replacement`, `without replacement` or `unknown`.
        accuracies: (E,) float64 in [0, 1].
        classes: (E, W) int64, classes of each episode; None where unknown.
        summary: the run's record; None where it was not scored here.
    """

    source: str
    method: str
    data_set: str
    pairing: str
    sampling: str
    accuracies: F64
    classes: I64 | None
    summary: RunSummary | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Run `a` less run `b`, each given by its position in the list of runs.

    Attributes:
        a, b: positions.
        paired: whether both answered the same queries.
        difference: accuracy of a less that of b.
        ci95: half width of the 95 % interval over episodes (paired t; Welch's where not paired).
        ci95_reason: why it is None.
        ci95_class: half width of the 95 % interval over classes (jackknife of the difference).
        ci95_class_reason: why it is None, or what makes it doubtful.
        wins, ties, losses: episodes in which a is better, equal, worse; None where not paired.
        correlation: of the two accuracies over the episodes (Pearson); None where not paired, or constant.
        p, p_class: two-sided p values of no difference, over episodes and over classes.
        p_holm, p_class_holm: the same, corrected over all comparisons made together.
        on_episodes: which is better on these images, at 5 % after correction.
        on_new_classes: which is better on other classes too; `unknown` without an interval over classes.
    """

    a: int
    b: int
    paired: bool
    difference: float
    ci95: float | None
    ci95_reason: str | None
    ci95_class: float | None
    ci95_class_reason: str | None
    wins: int | None
    ties: int | None
    losses: int | None
    correlation: float | None
    p: float | None
    p_holm: float | None
    p_class: float | None
    p_class_holm: float | None
    on_episodes: Winner
    on_new_classes: Winner


@dataclass(frozen=True, slots=True)
class _Deleted:
    """Which episodes leave which class out, and a run's means over them."""

    deletions: ClassDeletions
    means: F64  # (C,)
    noise: float


def accuracies_of(results: ResultFile, *, source: str) -> list[EpisodeAccuracies]:
    """The runs of a result file, in its order."""
    return [
        EpisodeAccuracies(
            source=source,
            method=run.summary.classifier,
            data_set=run.summary.labels_sha256,
            pairing=run.summary.queries_sha256,
            sampling=run.summary.sampling,
            accuracies=run.correct.sum(axis=1, dtype=np.int64) / (run.summary.n_way * run.summary.n_query),
            classes=results.episode_sets[run.episodes].episodes.classes,
            summary=run.summary,
        )
        for run in results.runs
    ]


def compare(runs: Sequence[EpisodeAccuracies]) -> list[Comparison]:
    """Every two runs on one data set, in order; p values corrected over all of them (Holm).

    Args:
        runs: from any number of result files and published accuracies.

    Returns:
        One comparison per pair; none for runs on different data sets.
    """
    deleted = _deletions(runs)
    found = [
        _compare((a, b), (runs[a], runs[b]), (deleted[a], deleted[b]))
        for a, b in itertools.combinations(range(len(runs)), 2)
        if runs[a].data_set == runs[b].data_set
    ]
    corrected = holm([one.p for one in found]), holm([one.p_class for one in found])
    return [_judged(one, *both) for one, *both in zip(found, *corrected, strict=True)]


def _deletions(runs: Iterable[EpisodeAccuracies]) -> list[_Deleted | None]:
    """Per run; runs with the same queries share the work."""
    known: dict[tuple[str, str], ClassDeletions] = {}
    found: list[_Deleted | None] = []
    for run in runs:
        if run.classes is None:
            found.append(None)
            continue
        key = (run.data_set, run.pairing)
        if key not in known:
            known[key] = class_deletions(run.classes)
        variance = float(run.accuracies.var(ddof=1)) if len(run.accuracies) > 1 else 0.0
        means = means_without(known[key], run.accuracies)
        found.append(_Deleted(known[key], means, known[key].noise * variance))
    return found


def _compare(
    positions: tuple[int, int],
    runs: tuple[EpisodeAccuracies, EpisodeAccuracies],
    deleted: tuple[_Deleted | None, _Deleted | None],
) -> Comparison:
    paired = runs[0].pairing == runs[1].pairing
    difference = (paired_difference if paired else unpaired_difference)(*(run.accuracies for run in runs))
    over_classes = _class_interval(difference, *deleted)
    p_class = None
    if over_classes.standard_error is not None:
        p_class = p_value(difference.difference, over_classes.standard_error, over_classes.degrees)
    return Comparison(
        a=positions[0],
        b=positions[1],
        paired=paired,
        difference=difference.difference,
        ci95=difference.half_width,
        ci95_reason=difference.reason,
        ci95_class=over_classes.half_width,
        ci95_class_reason=over_classes.reason,
        wins=difference.wins,
        ties=difference.ties,
        losses=difference.losses,
        correlation=difference.correlation,
        p=difference.p,
        p_holm=None,
        p_class=p_class,
        p_class_holm=None,
        on_episodes="undecided",
        on_new_classes="unknown",
    )


def _class_interval(difference: Difference, a: _Deleted | None, b: _Deleted | None) -> ClassInterval:
    """Jackknife of the difference: leaving a class out of both runs' episodes, be they the same or not."""
    if a is None or b is None:
        return ClassInterval(half_width=None, standard_error=None, degrees=0, reason=NO_CLASSES)
    if not np.array_equal(a.deletions.classes, b.deletions.classes):
        return ClassInterval(half_width=None, standard_error=None, degrees=0, reason=OTHER_CLASSES)
    noise = a.noise + b.noise
    if difference.variance is not None:
        noise = a.deletions.noise * difference.variance
    # Whichever has a class in every episode says so.
    weaker = min(a, b, key=lambda one: int(one.deletions.n_without.min()))
    return jackknife_interval(weaker.deletions, a.means - b.means, noise=noise)


def _judged(comparison: Comparison, p: float | None, p_class: float | None) -> Comparison:
    better: Winner = "a" if comparison.difference > 0 else "b"
    on_episodes: Winner = "undecided"
    if comparison.wins == comparison.losses == 0:
        on_episodes = "equal"
    elif p is None:
        on_episodes = "unknown"
    elif p < 1 - CONFIDENCE:
        on_episodes = better
    on_new_classes: Winner = "undecided"
    if p_class is None:
        on_new_classes = "unknown"
    elif p_class < 1 - CONFIDENCE and on_episodes == better:
        on_new_classes = better
    return replace(
        comparison,
        p_holm=p,
        p_class_holm=p_class,
        on_episodes=on_episodes,
        on_new_classes=on_new_classes,
    )
