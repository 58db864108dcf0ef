"""Classes and episodes from stored predictions, against counting one query at a time."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results import Images, Made, make_results
from scipy import stats

from fsnl.cache.result_file import EpisodeSet, ResultFile, StoredRun, count_correct
from fsnl.pipeline.reanalysis import Reanalysis, hardest_pairs, reanalyse, similar_classes_together


def the_only(results: ResultFile) -> tuple[StoredRun, EpisodeSet]:
    (run,) = results.runs
    return run, results.episode_sets[run.episodes]


def one_by_one(
    run: StoredRun, drawn: EpisodeSet
) -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]]:
    """Answers and chances, by (class asked, class answered) and (class asked, class present)."""
    answers: Counter[tuple[int, int]] = Counter()
    chances: Counter[tuple[int, int]] = Counter()
    for episode, classes in enumerate(drawn.episodes.classes.tolist()):
        for way, asked in enumerate(classes):
            for answer in run.predictions[episode, way].tolist():
                answers[asked, classes[answer]] += 1
                chances.update((asked, present) for present in classes)
    return answers, chances


@settings(max_examples=10)
@given(st.integers(0, 99), st.integers(2, 5))
def test_classes_and_confusions_are_counted_right(seed: int, n_way: int) -> None:
    images = Images(n_classes=6, n_way=n_way, n_query=4, n_episodes=12, seed=seed)
    run, drawn = the_only(make_results([Made()], images=images))
    found = reanalyse(run, drawn)
    answers, chances = one_by_one(run, drawn)
    occurring = sorted({asked for asked, _ in chances})
    assert found.class_names == tuple(f"class-{c}" for c in occurring)
    for i, a in enumerate(occurring):
        assert found.accuracy[i] == pytest.approx(answers[a, a] / chances[a, a])
        for j, b in enumerate(occurring):
            assert found.n_asked[i, j] == chances[a, b]
            if chances[a, b]:
                assert found.confusion[i, j] == pytest.approx(answers[a, b] / chances[a, b])
            else:
                assert np.isnan(found.confusion[i, j])


def test_the_interval_of_a_class_is_students_t_over_its_episodes() -> None:
    run, drawn = the_only(make_results([Made()]))
    found = reanalyse(run, drawn)
    for c in range(8):
        shares = run.correct[drawn.episodes.classes == c] / 15
        assert found.n_episodes[c] == len(shares)
        expected = stats.t.ppf(0.975, len(shares) - 1) * stats.sem(shares)
        assert found.half_width[c] == pytest.approx(expected)


def test_the_mean_over_episodes_and_over_classes_is_the_accuracy_of_the_run() -> None:
    run, drawn = the_only(make_results([Made()]))
    found = reanalyse(run, drawn)
    assert found.episode_accuracy.mean() == pytest.approx(run.summary.accuracy)
    assert np.average(found.accuracy, weights=found.n_episodes) == pytest.approx(run.summary.accuracy)


def test_a_class_seen_once_has_no_interval() -> None:
    run, drawn = the_only(make_results([Made()], images=Images(n_episodes=1)))
    assert np.isnan(reanalyse(run, drawn).half_width).all()


def swapped(*, n_classes: int = 8) -> Reanalysis:
    """All queries right, but class 2 always taken for class 5, and class 5 every other time for class 2."""
    run, drawn = the_only(make_results([Made()], images=Images(n_classes=n_classes)))
    classes = drawn.episodes.classes
    own = np.broadcast_to(np.arange(5)[:, None], run.predictions.shape)
    predictions = own.copy()
    for episode in np.flatnonzero((classes == 2).any(axis=1) & (classes == 5).any(axis=1)):
        two, five = (int(np.flatnonzero(classes[episode] == c)[0]) for c in (2, 5))
        predictions[episode, two] = five
        predictions[episode, five, ::2] = two
    answers = predictions.astype(np.uint8)
    return reanalyse(replace(run, predictions=answers, correct=count_correct(answers)), drawn)


def test_the_hardest_pair_comes_first_with_both_directions() -> None:
    worst, second = hardest_pairs(swapped(), n_most=2)
    assert (worst.first, worst.second) == (2, 5)
    assert [worst.first_as_second, worst.second_as_first] == pytest.approx([1, 8 / 15])
    assert (second.first_as_second, second.second_as_first) == (0, 0)


def test_pairs_that_hardly_met_are_not_ranked() -> None:
    run, drawn = the_only(make_results([Made()], images=Images(n_episodes=1)))
    assert hardest_pairs(reanalyse(run, drawn), n_most=5) == []


def test_classes_taken_for_each_other_lie_side_by_side() -> None:
    order = similar_classes_together(swapped()).tolist()
    assert sorted(order) == list(range(8))
    assert abs(order.index(2) - order.index(5)) == 1


@pytest.mark.parametrize("n_classes", [1, 2])
def test_one_or_two_classes_have_an_order_too(n_classes: int) -> None:
    images = Images(n_classes=n_classes, n_way=n_classes)
    run, drawn = the_only(make_results([Made()], images=images))
    assert similar_classes_together(reanalyse(run, drawn)).tolist() == list(range(n_classes))
