"""Attention by hand, against a slow reference, and what may be done to embeddings without changing it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from stores import answers, even_labels

from fsnl.cache.arrays import F32
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers.attention import attention_scores
from fsnl.pipeline.classifiers.attention_max import attention_max_scores
from fsnl.pipeline.classifiers.base import decide
from fsnl.pipeline.episodes import sample_episodes

# Three ways in the plane, two shots each, and one query along the first axis:
#   way 0: (2, 0) and (0, 3)     cosines 1 and 0
#   way 1: (1, 1) and (5, 5)     cosines 1/sqrt(2) each, whatever the lengths
#   way 2: (-1, 0) and (0, -2)   cosines -1 and 0
SUPPORT = np.array([[[2, 0], [0, 3]], [[1, 1], [5, 5]], [[-1, 0], [0, -2]]], dtype=np.float32)[None]
QUERY = np.array([[4, 0]], dtype=np.float32)[None]


def test_soft_attention_worked_by_hand() -> None:
    # exp(1) + exp(0) = 3.7183, 2 exp(0.70711) = 4.0562, exp(-1) + exp(0) = 1.3679; in all 9.1424
    weights = [math.e + 1, 2 * math.exp(math.sqrt(0.5)), 1 / math.e + 1]
    assert [round(weight, 4) for weight in weights] == [3.7183, 4.0562, 1.3679]
    scores = attention_scores(SUPPORT, QUERY, scale=1.0)
    np.testing.assert_allclose(scores[0, 0], [0.4067, 0.4437, 0.1496], atol=1e-4)
    # Two good supports outweigh the best one: way 1.
    assert decide(scores).tolist() == [[1]]


def test_the_largest_weight_worked_by_hand() -> None:
    scores = attention_max_scores(SUPPORT, QUERY)
    np.testing.assert_allclose(scores[0, 0], [1, math.sqrt(0.5), 0], atol=1e-6)
    # The single best support decides: way 0.
    assert decide(scores).tolist() == [[0]]


def test_a_sharp_softmax_answers_as_the_largest_weight_does() -> None:
    # exp(10) + exp(0) = 22,027.5 against 2 exp(7.0711) = 2,355.0
    scores = attention_scores(SUPPORT, QUERY, scale=10.0)
    np.testing.assert_allclose(scores[0, 0, 0] / scores[0, 0, 1], 22027.5 / 2355.0, rtol=1e-3)
    assert decide(scores).tolist() == [[0]]


def episode(
    *, n_episodes: int, n_way: int, n_shot: int, n_query: int, dim: int, seed: int
) -> tuple[F32, F32]:
    """Support (B, W, K, D) and query (B, n, D)."""
    rng = np.random.default_rng(seed)
    support = rng.normal(size=(n_episodes, n_way, n_shot, dim))
    query = rng.normal(size=(n_episodes, n_query, dim))
    return support.astype(np.float32), query.astype(np.float32)


episodes = st.builds(
    episode,
    n_episodes=st.integers(1, 3),
    n_way=st.integers(1, 4),
    n_shot=st.integers(1, 4),
    n_query=st.integers(1, 4),
    dim=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)


@given(episodes, st.sampled_from([0.5, 1.0, 10.0, 100.0]))
def test_soft_attention_equals_one_query_at_a_time(case: tuple[F32, F32], scale: float) -> None:
    support, query = case
    fast = attention_scores(support, query, scale=scale)
    for b, n in np.ndindex(query.shape[:2]):
        slow, _ = reference.attention(support[b].tolist(), query[b, n].tolist(), scale=scale)
        np.testing.assert_allclose(fast[b, n], slow, rtol=1e-4, atol=1e-6)


@given(episodes)
def test_the_largest_weight_equals_one_query_at_a_time(case: tuple[F32, F32]) -> None:
    support, query = case
    fast = attention_max_scores(support, query)
    for b, n in np.ndindex(query.shape[:2]):
        cosines = [[reference.cosine(shot, query[b, n]) for shot in shots] for shots in support[b]]
        np.testing.assert_allclose(fast[b, n], np.max(cosines, axis=1), rtol=1e-4, atol=1e-6)
        _, way = reference.attention(support[b].tolist(), query[b, n].tolist())
        best_two = np.sort(np.ravel(np.max(cosines, axis=1)))[-2:]
        if len(best_two) == 2 and best_two[1] - best_two[0] > 1e-5:
            assert decide(fast)[b, n] == way


@given(episodes)
def test_weights_of_an_episode_add_up_to_one(case: tuple[F32, F32]) -> None:
    scores = attention_scores(*case, scale=1.0)
    assert (scores >= 0).all()
    np.testing.assert_allclose(scores.sum(axis=2), 1, rtol=1e-5)


@given(episodes)
def test_with_one_shot_both_kinds_of_attention_answer_alike(case: tuple[F32, F32]) -> None:
    support, query = case
    soft = attention_scores(support[:, :, :1], query, scale=1.0)
    largest = attention_max_scores(support[:, :, :1], query)
    best_two = np.sort(largest, axis=2)[..., -2:]
    clear = np.ptp(best_two, axis=2) > 1e-5 if largest.shape[2] > 1 else np.ones(largest.shape[:2], bool)
    np.testing.assert_array_equal(decide(soft)[clear], decide(largest)[clear])


# Through scoring: six classes of ten rows, six episodes.
CLASSIFIERS = ("attention", "attention-max")
LABELS = even_labels(n_classes=6, n_per_class=10)


def embeddings_of(seed: int) -> F32:
    """(60, 7), of no class structure: hard to answer, and hard in the same way for a wrong program."""
    return np.random.default_rng(seed).normal(size=(len(LABELS), 7)).astype(np.float32)


def episodes_of(seed: int) -> Episodes:
    return sample_episodes(LABELS, n_way=4, n_shot=3, n_query=5, n_episodes=6, seed=seed)


seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_scoring_answers_as_the_slow_reference_does(seed: int) -> None:
    embeddings, drawn = embeddings_of(seed), episodes_of(seed)
    soft, largest = (answers(embeddings, LABELS, drawn, name) for name in CLASSIFIERS)
    for e, way, q in np.ndindex(soft.shape):
        support = embeddings[drawn.support[e]].tolist()
        weights, best = reference.attention(support, embeddings[drawn.query[e, way, q]].tolist())
        assert soft[e, way, q] == np.argmax(weights)
        assert largest[e, way, q] == best


@pytest.mark.parametrize("name", CLASSIFIERS)
@given(seed=seeds)
def test_lengths_of_embeddings_do_not_matter(name: str, seed: int) -> None:
    embeddings, drawn = embeddings_of(seed), episodes_of(seed)
    factors = 2.0 ** np.random.default_rng(seed).integers(-8, 9, len(embeddings))
    scaled = (embeddings * factors[:, None]).astype(np.float32)  # powers of two: exact
    np.testing.assert_array_equal(
        answers(embeddings, LABELS, drawn, name), answers(scaled, LABELS, drawn, name)
    )


@pytest.mark.parametrize("name", CLASSIFIERS)
@given(seed=seeds)
def test_the_order_of_the_shots_does_not_matter(name: str, seed: int) -> None:
    embeddings, drawn = embeddings_of(seed), episodes_of(seed)
    support = np.random.default_rng(seed).permuted(drawn.support, axis=2)
    shuffled = replace(drawn, support=support)
    np.testing.assert_array_equal(
        answers(embeddings, LABELS, drawn, name), answers(embeddings, LABELS, shuffled, name)
    )


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_equal_scores_go_to_the_lowest_way(name: str) -> None:
    # All embeddings alike: every way is as good as any other.
    drawn = episodes_of(0)
    for value in (1.0, 0.1, 1e-3, 7e4):
        embeddings = np.full((60, 7), value, dtype=np.float32)
        assert not answers(embeddings, LABELS, drawn, name).any()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_zero_embedding_is_equally_near_to_all_and_said_to_be(name: str) -> None:
    embeddings, drawn = embeddings_of(0), episodes_of(0)
    queries = np.unique(drawn.query[0])
    embeddings[queries] = 0
    with pytest.warns(UserWarning, match=f"{len(queries)} of 60 embeddings are zero .* cosines count as 0"):
        ways = answers(embeddings, LABELS, drawn, name)
    assert not ways[0].any()
