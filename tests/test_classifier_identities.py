"""What may be done to embeddings without changing an answer, and classifiers that agree."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import answers, clusters, even_labels

from fsnl.cache.arrays import F32, I64
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers.base import decide
from fsnl.pipeline.classifiers.registry import build_classifier
from fsnl.pipeline.episodes import sample_episodes

LABELS = even_labels(n_classes=7, n_per_class=12)
BY_DISTANCE = ["1nn", "knn:3", "prototype", "ridge", "logistic"]
BY_COSINE = ["attention", "attention:10", "attention-max", "mean-cosine", "prototype-cosine"]
seeds = st.integers(0, 2**32)


def embeddings_of(seed: int, *, dim: int = 20) -> F32:
    return clusters(n_classes=7, n_per_class=12, dim=dim, spread=1.5, seed=seed)


def drawn(seed: int, *, n_shot: int = 4) -> Episodes:
    return sample_episodes(LABELS, n_way=4, n_shot=n_shot, n_query=3, n_episodes=8, seed=seed)


@settings(max_examples=8)
@given(seed=seeds)
def test_with_one_shot_all_cosine_methods_agree(seed: int) -> None:
    embeddings, episodes = embeddings_of(seed), drawn(seed, n_shot=1)
    first = answers(embeddings, LABELS, episodes, "attention")
    for name in BY_COSINE[1:]:
        assert (answers(embeddings, LABELS, episodes, name) == first).all()


@settings(max_examples=8)
@given(seed=seeds)
def test_with_one_shot_the_prototype_is_the_nearest_neighbour(seed: int) -> None:
    embeddings, episodes = embeddings_of(seed), drawn(seed, n_shot=1)
    nearest = answers(embeddings, LABELS, episodes, "1nn")
    for name in ("prototype", "knn:1"):
        assert (answers(embeddings, LABELS, episodes, name) == nearest).all()


@settings(max_examples=8)
@given(seed=seeds)
def test_attention_with_a_large_scale_is_attention_max(seed: int) -> None:
    embeddings, episodes = embeddings_of(seed), drawn(seed)
    largest = answers(embeddings, LABELS, episodes, "attention-max")
    assert (answers(embeddings, LABELS, episodes, "attention:100000") == largest).all()


@pytest.mark.parametrize("name", BY_DISTANCE)
@settings(max_examples=8)
@given(seed=seeds, offset=st.sampled_from([-3.0, 64.0, 4096.0]))
def test_translating_all_embeddings_leaves_methods_on_distances_unchanged(
    name: str, seed: int, offset: float
) -> None:
    # Multiples of 1/256 below 16: their sums with these offsets are exact in float32.
    embeddings = np.round(embeddings_of(seed) * 256) / np.float32(256)
    episodes = drawn(seed)
    moved = embeddings + np.float32(offset)
    assert (moved - np.float32(offset) == embeddings).all()
    before = answers(embeddings, LABELS, episodes, name)
    assert (answers(moved, LABELS, episodes, name) == before).all()


@pytest.mark.parametrize("name", BY_COSINE)
@settings(max_examples=8)
@given(seed=seeds)
def test_rescaling_each_embedding_leaves_methods_on_cosines_unchanged(name: str, seed: int) -> None:
    if name == "prototype-cosine":  # the mean of the supports weighs them by their lengths
        factors = np.full(len(LABELS), 2.0**-7)
    else:
        factors = 2.0 ** np.random.default_rng(seed).integers(-20, 20, len(LABELS))
    embeddings, episodes = embeddings_of(seed), drawn(seed)
    rescaled = (embeddings * factors[:, None]).astype(np.float32)
    before = answers(embeddings, LABELS, episodes, name)
    assert (answers(rescaled, LABELS, episodes, name) == before).all()


@pytest.mark.parametrize("name", BY_DISTANCE + BY_COSINE)
@settings(max_examples=8)
@given(seed=seeds)
def test_permuting_shots_ways_and_queries_permutes_the_answers(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    embeddings, episodes = embeddings_of(seed), drawn(seed)
    ways: I64 = rng.permutation(4)
    permuted = replace(
        episodes,
        classes=episodes.classes[:, ways],
        support=np.ascontiguousarray(episodes.support[:, ways][:, :, rng.permutation(4)]),
        query=np.ascontiguousarray(episodes.query[:, ways][:, :, ::-1]),
    )
    before = answers(embeddings, LABELS, episodes, name)
    after = answers(embeddings, LABELS, permuted, name)
    # Position w now holds the class of way ways[w]: translate the answers back.
    assert (ways[after] == before[:, ways][:, :, ::-1]).all()


@pytest.mark.parametrize("name", BY_DISTANCE + BY_COSINE)
@settings(max_examples=8)
@given(seed=seeds)
def test_the_engine_answers_as_the_scores_alone_do(name: str, seed: int) -> None:
    embeddings, episodes = embeddings_of(seed), drawn(seed)
    support = embeddings[episodes.support].astype(np.float64)
    query = embeddings[episodes.query].reshape(8, 12, -1).astype(np.float64)
    alone = decide(build_classifier(name).scores(support, query)).reshape(8, 4, 3)
    assert (answers(embeddings, LABELS, episodes, name) == alone).all()


@pytest.mark.parametrize("name", BY_DISTANCE + BY_COSINE)
def test_scores_come_in_the_dtype_of_the_embeddings(name: str) -> None:
    rng = np.random.default_rng(0)
    support, query = rng.normal(size=(2, 3, 2, 5)), rng.normal(size=(2, 4, 5))
    for dtype in (np.float32, np.float64):
        scores = build_classifier(name).scores(support.astype(dtype), query.astype(dtype))
        assert scores.shape == (2, 4, 3)
        assert scores.dtype == dtype
