"""Intervals of one run against SciPy, against sums by hand, and against an obvious jackknife."""

import math

import coverage_simulation
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fsnl.cache.arrays import F64, I64
from fsnl.pipeline.episodes import sample_episodes
from fsnl.pipeline.statistics import (
    class_deletions,
    class_interval,
    episode_interval,
    half_width,
    means_without,
)
from fsnl.pipeline.student_t import outside, two_sided


def obvious_jackknife(accuracies: F64, classes: I64) -> float:
    """Half width as the paper's formula reads, class by class."""
    means = np.array(
        [accuracies[~(classes == c).any(axis=1)].mean() for c in np.unique(classes)], dtype=np.float64
    )
    n = len(means)
    variance = (n - 1) / n * ((means - means.mean()) ** 2).sum()
    return float(stats.t.ppf(0.975, n - 1) * np.sqrt(variance))


def drawn_classes(n_classes: int, *, n_way: int, n_episodes: int, seed: int = 0) -> I64:
    labels = np.repeat(np.arange(n_classes, dtype=np.int64), 2)
    episodes = sample_episodes(labels, n_way=n_way, n_shot=1, n_query=1, n_episodes=n_episodes, seed=seed)
    return episodes.classes


def accuracies_of(classes: I64, *, spread: float, noise: float, seed: int = 0) -> F64:
    """Each class has a level of its own, and each episode some noise."""
    random = np.random.default_rng(seed)
    levels = random.normal(0.5, spread, classes.max() + 1)
    return np.asarray(levels[classes].mean(axis=1) + random.normal(0, noise, len(classes)))


@pytest.mark.parametrize("degrees", [1, 2, 9, 19, 9_999])
def test_the_half_width_is_students_t(degrees: int) -> None:
    assert half_width(0.3, degrees) == pytest.approx(0.3 * stats.t.ppf(0.975, degrees))


@given(st.floats(0.5, 1e6), st.floats(0, 1e3))
def test_students_t_is_scipys(degrees: float, t: float) -> None:
    assert outside(t, degrees) == pytest.approx(2 * stats.t.sf(t, degrees), rel=1e-8, abs=1e-300)


@given(st.floats(0.5, 1e6), st.floats(0.001, 0.9999))
def test_students_quantile_is_scipys(degrees: float, confidence: float) -> None:
    t = two_sided(confidence, degrees)
    assert t == pytest.approx(stats.t.ppf((1 + confidence) / 2, degrees), rel=1e-8)
    assert outside(t, degrees) == pytest.approx(1 - confidence, rel=1e-10)


def test_students_t_of_one_and_two_degrees_by_hand() -> None:
    # One degree is Cauchy's, P(|T| <= t) = 2 / pi * arctan(t); of two it is t / sqrt(2 + t^2).
    for t in (1e-9, 0.1, 1.0, 12.0, 1e6):
        assert 1 - outside(t, 1) == pytest.approx(2 / math.pi * math.atan(t), rel=1e-13, abs=1e-15)
        assert 1 - outside(t, 2) == pytest.approx(t / math.sqrt(2 + t * t), rel=1e-13, abs=1e-15)
    assert two_sided(0.0, 7) == 0


def test_students_t_of_nothing_is_not_a_number_and_comes_to_an_end() -> None:
    assert math.isnan(outside(math.nan, 3))
    assert math.isnan(two_sided(math.nan, 3))


@given(st.lists(st.integers(0, 75), min_size=2, max_size=40))
def test_the_interval_over_episodes_is_scipys(counts: list[int]) -> None:
    accuracies = np.array(counts) / 75
    found = episode_interval(accuracies)
    expected = stats.t.ppf(0.975, len(counts) - 1) * stats.sem(accuracies)
    assert found.half_width == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert found.sd == pytest.approx(np.std(accuracies, ddof=1))
    assert found.reason is None


def test_one_episode_has_no_interval_and_says_so() -> None:
    found = episode_interval(np.array([0.5]))
    assert (found.sd, found.half_width) == (None, None)
    assert found.reason == "one episode has no spread"


def test_the_jackknife_by_hand() -> None:
    # Four classes in pairs, every pair once. theta(c) is the mean of the three pairs without c:
    # theta(0) = (12, 13, 23) = (0.6 + 0.7 + 0.8) / 3 = 0.7     theta(1) = (0.4 + 0.5 + 0.8) / 3 = 17/30
    # theta(2) = (0.3 + 0.5 + 0.7) / 3 = 0.5                     theta(3) = (0.3 + 0.4 + 0.6) / 3 = 13/30
    # mean 0.55; squares (0.15, 1/60, -0.05, -7/60)^2 = 0.0225 + 1/3600 + 0.0025 + 49/3600 = 140/3600
    # V = 3/4 * 140/3600 = 7/240, half width t(3) = 3.182446 times its root.
    classes = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
    accuracies = np.array([0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    means = means_without(class_deletions(classes), accuracies)
    assert means == pytest.approx([0.7, 17 / 30, 0.5, 13 / 30])
    found = class_interval(accuracies, classes)
    assert found.degrees == 3
    assert found.standard_error == pytest.approx((7 / 240) ** 0.5)
    assert found.half_width == pytest.approx(3.182446 * (7 / 240) ** 0.5, rel=1e-6)


@given(n_classes=st.integers(4, 12), n_way=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_jackknife_equals_the_obvious_one(n_classes: int, n_way: int, seed: int) -> None:
    classes = drawn_classes(n_classes, n_way=n_way, n_episodes=80, seed=seed)
    accuracies = accuracies_of(classes, spread=0.1, noise=0.05, seed=seed)
    assert class_interval(accuracies, classes).half_width == pytest.approx(
        obvious_jackknife(accuracies, classes)
    )


def test_with_one_class_per_episode_the_jackknife_is_the_standard_error_of_the_class_means() -> None:
    # One episode per class: theta(c) is the usual leave-one-out mean, whose jackknife is exact.
    accuracies = np.array([0.2, 0.5, 0.4, 0.9, 0.7])
    found = class_interval(accuracies, np.arange(5)[:, None])
    assert found.standard_error == pytest.approx(stats.sem(accuracies))


def test_renaming_classes_and_reordering_ways_and_episodes_changes_nothing() -> None:
    classes = drawn_classes(8, n_way=3, n_episodes=200)
    accuracies = accuracies_of(classes, spread=0.1, noise=0.05)
    order = np.random.default_rng(1).permutation(200)
    renamed = (classes * 7 + 100)[order][:, ::-1]
    found, again = class_interval(accuracies, classes), class_interval(accuracies[order], renamed)
    assert again.half_width == pytest.approx(found.half_width)


@pytest.mark.parametrize("n_episodes", [1, 50])
def test_there_is_no_class_interval_where_all_classes_are_in_every_episode(n_episodes: int) -> None:
    classes = drawn_classes(5, n_way=5, n_episodes=n_episodes)
    found = class_interval(np.linspace(0, 1, n_episodes), classes)
    assert (found.half_width, found.standard_error) == (None, None)
    assert found.reason == "every class is in every episode, so the classes cannot be left out in turn"


def test_there_is_no_class_interval_where_some_class_is_in_every_episode() -> None:
    classes = np.array([[0, 1], [2, 0], [0, 3]])
    found = class_interval(np.array([0.1, 0.5, 0.2]), classes)
    assert found.half_width is None
    assert found.reason is not None
    assert found.reason.startswith("1 of 4 classes occur in every episode")


def noise_only(classes: I64, *, repetitions: int) -> npt.NDArray[np.float64]:
    """Jackknife variances where classes do not matter and an episode has variance 1."""
    deletions = class_deletions(classes)
    random = np.random.default_rng(0)
    n = len(deletions.classes)
    found = []
    for _ in range(repetitions):
        means = means_without(deletions, random.normal(size=len(classes)))
        found.append((n - 1) / n * ((means - means.mean()) ** 2).sum())
    return np.array(found)


@pytest.mark.parametrize(("n_classes", "n_way"), [(20, 5), (6, 5), (5, 2)])
def test_the_expected_noise_of_the_jackknife_is_what_noise_alone_gives(n_classes: int, n_way: int) -> None:
    classes = drawn_classes(n_classes, n_way=n_way, n_episodes=150)
    variances = noise_only(classes, repetitions=2_000)
    standard_error = variances.std() / len(variances) ** 0.5
    assert abs(class_deletions(classes).noise - variances.mean()) < 4 * standard_error
    # (C - 1) W / (C - W) / E, where every class is left out equally often.
    balanced = (n_classes - 1) * n_way / (n_classes - n_way) / 150
    assert class_deletions(classes).noise == pytest.approx(balanced, rel=0.1)


def test_a_jackknife_that_is_mostly_noise_is_flagged_and_one_that_is_not_is_not() -> None:
    few, many = (drawn_classes(20, n_way=5, n_episodes=n) for n in (40, 10_000))
    doubtful = class_interval(accuracies_of(few, spread=0.05, noise=0.1), few)
    assert doubtful.half_width is not None
    assert doubtful.reason is not None
    assert doubtful.reason.startswith("doubtful: ")
    assert "from drawing 40 episodes, not from the 20 classes" in doubtful.reason
    assert class_interval(accuracies_of(many, spread=0.05, noise=0.1), many).reason is None


@pytest.mark.parametrize("level", [0.0, 0.7, 1.0])
def test_accuracies_that_are_all_equal_have_intervals_of_no_width(level: float) -> None:
    classes = drawn_classes(20, n_way=5, n_episodes=101)
    accuracies = np.full(101, level)
    assert episode_interval(accuracies).half_width == pytest.approx(0, abs=1e-12)
    found = class_interval(accuracies, classes)
    assert found.half_width == pytest.approx(0, abs=1e-12)
    assert found.reason is None


def test_the_simulation_counts_its_exact_truth_right() -> None:
    # The mean of many sampled episodes is that truth, but for its standard error.
    embeddings = coverage_simulation.draw(seed=0)
    accuracies, _ = coverage_simulation.score(embeddings, seed=0)
    error = accuracies.std(ddof=1) / len(accuracies) ** 0.5
    assert abs(accuracies.mean() - coverage_simulation.exact_accuracy(embeddings)) < 4 * error


@pytest.mark.slow
def test_the_intervals_cover_what_they_are_intervals_for() -> None:
    # bin/bench-intervals does 300 repetitions: 95 % of these images, 12 % and 97 % of new classes.
    found = coverage_simulation.simulate(40)
    assert found.closed_of_these_images >= 0.88
    assert found.closed_of_new_classes <= 0.3
    assert found.classes_of_new_classes >= 0.9
