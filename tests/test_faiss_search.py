"""The door to FAISS: distances and neighbours against NumPy's in float64, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsnl.cache.arrays import F32
from fsnl.pipeline.classifiers.faiss_search import (
    nearest,
    squared_distances,
    squared_distances_to_rows,
)

seeds = st.integers(0, 2**32 - 1)


def drawn(seed: int, *shape: int) -> F32:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(seeds, st.integers(1, 4), st.integers(1, 30), st.integers(1, 9), st.integers(1, 70))
def test_distances_are_those_of_each_query_to_the_supports_of_its_episode(
    seed: int, n_block: int, m: int, n: int, dim: int
) -> None:
    support, embeddings = drawn(seed, n_block, m, dim), drawn(seed + 1, 20, dim)
    rows = np.random.default_rng(seed).integers(0, 20, (n_block, n))
    query = embeddings[rows]
    difference = query[:, :, None].astype(np.float64) - support[:, None]
    expected = (difference**2).sum(axis=-1)
    for found in (
        squared_distances(support, query),
        squared_distances_to_rows(support, embeddings, rows),
    ):
        assert found.shape == (n_block, n, m)
        assert found.dtype == np.float32
        assert np.abs(found - expected).max() < 1e-5 * (1 + expected.max())


def test_distances_to_rows_keep_their_digits_far_from_the_origin() -> None:
    embeddings = (1e4 + np.random.default_rng(0).integers(0, 2, (6, 640))).astype(np.float32)
    [found] = squared_distances_to_rows(embeddings[None, :2], embeddings, np.array([[2, 5]]))
    expected = ((embeddings[[2, 5], None].astype(np.float64) - embeddings[:2]) ** 2).sum(axis=-1)
    assert found.tolist() == expected.tolist()


@given(seeds, st.integers(1, 30), st.data())
def test_the_nearest_come_first_with_their_positions(seed: int, m: int, data: st.DataObject) -> None:
    n_neighbours = data.draw(st.integers(1, m))
    # Whole numbers in random order: no ties, and what is sorted can be told.
    distances = np.random.default_rng(seed).permuted(np.tile(np.arange(m), (2, 5, 1)), axis=2)
    least, positions = nearest(distances.astype(np.float32), n_neighbours=n_neighbours)
    np.testing.assert_array_equal(least, np.broadcast_to(np.arange(n_neighbours), least.shape))
    np.testing.assert_array_equal(positions, distances.argsort(axis=2)[..., :n_neighbours])


def test_the_first_supports_may_be_searched_alone() -> None:
    distances = np.array([[[3, 1, 2, 0]]], dtype=np.float32)
    assert nearest(distances[..., :3], n_neighbours=1)[1].tolist() == [[[1]]]


def test_a_distance_that_is_not_finite_has_no_position() -> None:
    distances = np.array([[[np.nan, 2.0, np.inf]]], dtype=np.float32)
    least, positions = nearest(distances, n_neighbours=3)
    assert positions.tolist() == [[[1, -1, -1]]]
    assert least[0, 0, 0] == 2


def test_arrays_that_faiss_would_misread_are_refused() -> None:
    support, query = drawn(0, 2, 3, 4), drawn(1, 2, 5, 4)
    with pytest.raises(ValueError, match=r"support must be a C-contiguous float32 array .* float64"):
        squared_distances(support.astype(np.float64), query)
    with pytest.raises(ValueError, match="query must be a C-contiguous"):
        squared_distances(support, query[:, ::2])
    with pytest.raises(ValueError, match="support has 4 dimensions, query 3"):
        squared_distances(support, np.ascontiguousarray(query[..., :3]))
    with pytest.raises(ValueError, match="support has 2 episodes, query 1"):
        squared_distances(support, query[:1])
    embeddings, rows = drawn(2, 9, 4), np.zeros((2, 5), np.int64)
    for wrong in (-1, 9):
        rows[1, 2] = wrong
        with pytest.raises(ValueError, match=f"query_rows are .*{wrong}.*, the embeddings have rows 0 to 8"):
            squared_distances_to_rows(support, embeddings, rows)
    with pytest.raises(ValueError, match="support has 2 episodes, query_rows 1"):
        squared_distances_to_rows(support, embeddings, rows[:1])
    with pytest.raises(ValueError, match="embeddings must be a C-contiguous float32 array of 2 axes"):
        squared_distances_to_rows(support, embeddings[:, ::2], rows)
    with pytest.raises(ValueError, match="support has 4 dimensions, embeddings 3"):
        squared_distances_to_rows(support, drawn(2, 9, 3), rows)
    for n_neighbours in (0, 4):
        with pytest.raises(ValueError, match=f"n_neighbours is {n_neighbours}, needed 1 to 3"):
            nearest(squared_distances(support, query), n_neighbours=n_neighbours)
