"""1-NN by hand, against scikit-learn, its ties, and what may be done to embeddings without changing it."""

from dataclasses import replace

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from stores import answers, even_labels

from fsnl.cache.arrays import F32, F64, I64
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers.base import decide
from fsnl.pipeline.classifiers.nearest_neighbour import nearest_neighbour_scores
from fsnl.pipeline.episodes import sample_episodes

# Three ways in the plane, two shots each, and three queries.
SUPPORT = np.array([[[0, 0], [9, 9]], [[3, 0], [0, 3]], [[4, 4], [-4, 4]]], dtype=np.float32)[None]
QUERIES = np.array([[1, 0], [3, 2], [8, 8]], dtype=np.float32)[None]


def test_nearest_supports_worked_by_hand() -> None:
    # (1, 0): 1 to (0, 0), 4 to (3, 0).  (3, 2): 4 to (3, 0), 5 to (4, 4).  (8, 8): 2 to (9, 9), 32 to (4, 4).
    scores = nearest_neighbour_scores(SUPPORT, QUERIES)
    assert scores.tolist() == [[[1, 0, 0], [0, 1, 0], [1, 0, 0]]]
    assert decide(scores).tolist() == [[0, 1, 0]]


LABELS = even_labels(n_classes=6, n_per_class=10)
seeds = st.integers(0, 2**32 - 1)


def embeddings_of(seed: int, *, dim: int = 7) -> F32:
    return np.random.default_rng(seed).normal(size=(len(LABELS), dim)).astype(np.float32)


def episodes_of(seed: int, *, n_shot: int = 3) -> Episodes:
    return sample_episodes(LABELS, n_way=4, n_shot=n_shot, n_query=5, n_episodes=6, seed=seed)


@given(seeds, st.integers(1, 4))
def test_scoring_answers_as_scikit_learn_does(seed: int, n_shot: int) -> None:
    embeddings, drawn = embeddings_of(seed), episodes_of(seed, n_shot=n_shot)
    ours = answers(embeddings, LABELS, drawn, "1nn")
    for e in range(drawn.n_episodes):
        library = KNeighborsClassifier(n_neighbors=1, algorithm="brute")
        ways = np.repeat(np.arange(drawn.n_way), n_shot)
        library.fit(embeddings[drawn.support[e].ravel()].astype(np.float64), ways)
        theirs = library.predict(embeddings[drawn.query[e].ravel()].astype(np.float64))
        np.testing.assert_array_equal(ours[e].ravel(), theirs)


@given(seeds)
def test_scoring_answers_as_the_slow_reference_does(seed: int) -> None:
    embeddings, drawn = embeddings_of(seed), episodes_of(seed)
    ours = answers(embeddings, LABELS, drawn, "1nn")
    for e, way, q in np.ndindex(ours.shape):
        support = embeddings[drawn.support[e]].tolist()
        assert ours[e, way, q] == reference.nearest_way(support, embeddings[drawn.query[e, way, q]].tolist())


@settings(max_examples=50)
@given(seeds, st.integers(1, 3), st.integers(1, 4))
def test_ties_go_to_the_lowest_way(seed: int, largest: int, dim: int) -> None:
    # Whole numbers up to 3 in few dimensions: most nearest supports have equals, and all distances are exact.
    rng = np.random.default_rng(seed)
    embeddings = rng.integers(0, largest, (len(LABELS), dim), endpoint=True).astype(np.float32)
    drawn = episodes_of(seed)
    ours = answers(embeddings, LABELS, drawn, "1nn")
    for e, way, q in np.ndindex(ours.shape):
        support = embeddings[drawn.support[e]].tolist()
        assert ours[e, way, q] == reference.nearest_way(support, embeddings[drawn.query[e, way, q]].tolist())


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e4])
def test_ties_far_from_the_origin_go_to_the_lowest_way_too(offset: float) -> None:
    # There |x|^2 + |y|^2 - 2xy has no digit left for the difference of two distances.
    rng = np.random.default_rng(0)
    embeddings = (rng.integers(0, 2, (len(LABELS), 640)) + offset).astype(np.float32)
    drawn = episodes_of(0, n_shot=4)
    ours = answers(embeddings, LABELS, drawn, "1nn")
    for e, way, q in np.ndindex(ours.shape):
        expected = (exact_distances(embeddings, drawn, e, drawn.query[e, way, q])).argmin() // 4
        assert ours[e, way, q] == expected


def exact_distances(embeddings: F32, episodes: Episodes, e: int, query: I64) -> F64:
    """(W * K,) squared distances in float64."""
    support = embeddings[episodes.support[e].ravel()].astype(np.float64)
    return np.asarray(((support - embeddings[query]) ** 2).sum(axis=1))


def test_all_equal_embeddings_are_all_of_way_zero() -> None:
    for value in (0.0, 1.0, 0.1, -7e4):
        embeddings = np.full((60, 5), value, dtype=np.float32)
        assert not answers(embeddings, LABELS, episodes_of(0), "1nn").any()


def test_a_query_that_is_among_the_supports_of_a_way_is_of_that_way() -> None:
    # Pixel-identical images exist, also across classes: the copy answers.
    embeddings, drawn = embeddings_of(1), episodes_of(1)
    embeddings[drawn.query[0, 0, 0]] = embeddings[drawn.support[0, 3, 2]]
    assert answers(embeddings, LABELS, drawn, "1nn")[0, 0, 0] == 3


@given(seeds, st.sampled_from([-4.0, 0.5, 64.0]))
def test_moving_all_embeddings_changes_no_answer(seed: int, by: float) -> None:
    # Multiples of 1/64 below 64: the sum is exact.
    rng = np.random.default_rng(seed)
    embeddings = (rng.integers(-4096, 4096, (len(LABELS), 6)) / 64).astype(np.float32)
    drawn = episodes_of(seed)
    moved = (embeddings + np.float32(by)).astype(np.float32)
    before, after = (answers(each, LABELS, drawn, "1nn") for each in (embeddings, moved))
    np.testing.assert_array_equal(before, after)


@given(seeds, st.sampled_from([2.0**-40, 0.25, 2.0**20]))
def test_scaling_all_embeddings_alike_changes_no_answer(seed: int, by: float) -> None:
    embeddings, drawn = embeddings_of(seed), episodes_of(seed)
    before, after = (
        answers(each, LABELS, drawn, "1nn") for each in (embeddings, embeddings * np.float32(by))
    )
    np.testing.assert_array_equal(before, after)


@given(seeds)
def test_the_order_of_the_shots_does_not_matter(seed: int) -> None:
    embeddings, drawn = embeddings_of(seed), episodes_of(seed)
    support = np.random.default_rng(seed).permuted(drawn.support, axis=2)
    before, after = (
        answers(embeddings, LABELS, each, "1nn") for each in (drawn, replace(drawn, support=support))
    )
    np.testing.assert_array_equal(before, after)


@given(seeds)
def test_the_order_of_the_ways_only_renames_the_answers(seed: int) -> None:
    embeddings, drawn = embeddings_of(seed), episodes_of(seed)
    order = np.random.default_rng(seed).permutation(drawn.n_way)
    moved = Episodes(
        classes=drawn.classes[:, order],
        support=drawn.support[:, order],
        query=drawn.query[:, order],
        seed=drawn.seed,
        sampler=drawn.sampler,
        sampling=drawn.sampling,
    )
    before = answers(embeddings, LABELS, drawn, "1nn")
    after = answers(embeddings, LABELS, moved, "1nn")
    np.testing.assert_array_equal(before[:, order], order[after])
