"""The engine: answers depend on the embeddings alone, however they are blocked, shared, scaled or rounded."""

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from stores import answers, clusters, even_labels, in_memory

from fsnl.cache.arrays import F32, I64
from fsnl.cache.errors import ScoringError
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers import engine
from fsnl.pipeline.classifiers.base import decide_with_ties
from fsnl.pipeline.classifiers.block import Block, Buffers
from fsnl.pipeline.classifiers.engine import predict
from fsnl.pipeline.classifiers.registry import build_classifier
from fsnl.pipeline.classifiers.rows import prepare
from fsnl.pipeline.classifiers.similarity import product_error
from fsnl.pipeline.episodes import sample_episodes
from fsnl.pipeline.score import score

LABELS = even_labels(n_classes=8, n_per_class=20)
DISTANCE = ["1nn", "knn:3", "prototype"]
COSINE = ["attention", "attention-max", "mean-cosine", "prototype-cosine"]
ALL = [*DISTANCE, *COSINE, "ridge", "logistic"]


def some(dim: int = 24, *, seed: int = 0) -> F32:
    return clusters(n_classes=8, n_per_class=20, dim=dim, spread=2.0, seed=seed)


def drawn(n_shot: int = 3, *, n_way: int = 5, n_query: int = 4, n_episodes: int = 40) -> Episodes:
    return sample_episodes(LABELS, n_way=n_way, n_shot=n_shot, n_query=n_query, n_episodes=n_episodes, seed=1)


def all_ways(embeddings: F32, sets: list[Episodes], names: list[str], *, n_threads: int = 1) -> list[I64]:
    built = [[build_classifier(name) for name in names] for _ in sets]
    rows = predict(embeddings, sets, built, n_threads=n_threads)
    return [prediction.ways.astype(np.int64) for row in rows for prediction in row]


def assert_same(first: list[I64], second: list[I64]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert (one == other).all()


def precise(embeddings: F32, episodes: Episodes, name: str) -> I64:
    """By the scores alone, in float64."""
    support = embeddings[episodes.support].astype(np.float64)
    query = embeddings[episodes.query].reshape(episodes.n_episodes, -1, embeddings.shape[1])
    classifier = build_classifier(name)
    scores = classifier.scores(support, query.astype(np.float64))
    return decide_with_ties(scores, classifier).reshape(episodes.query.shape)


def test_threads_blocks_and_company_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, sets = some(), [drawn(1), drawn(3), drawn(5)]
    names = [name for name in ALL if name != "knn:3"] + ["attention:20"]
    together = all_ways(embeddings, sets, names)
    assert_same(together, all_ways(embeddings, sets, names, n_threads=3))
    alone = [all_ways(embeddings, [one], [name])[0] for one in sets for name in names]
    assert_same(together, alone)
    monkeypatch.setattr(engine, "BLOCK_BYTES", 1)
    assert_same(together, all_ways(embeddings, sets, names, n_threads=2))


def test_runs_come_in_the_order_asked_for_whatever_nests() -> None:
    embeddings = some()
    other = sample_episodes(LABELS, n_way=3, n_shot=2, n_query=4, n_episodes=10, seed=9)
    sets = [drawn(1), other, drawn(5), drawn(2)]
    rows = predict(embeddings, sets, [[build_classifier("1nn")]] * 4, n_threads=2)
    assert [row[0].ways.shape for row in rows] == [one.query.shape for one in sets]
    for one, [prediction] in zip(sets, rows, strict=True):
        assert (prediction.ways == answers(embeddings, LABELS, one, "1nn")).all()


def test_each_set_may_have_classifiers_of_its_own() -> None:
    embeddings, sets = some(), [drawn(1), drawn(5)]
    built = [[build_classifier("attention-max")], [build_classifier(name) for name in ("1nn", "prototype")]]
    rows = predict(embeddings, sets, built, n_threads=1)
    wanted = [
        *all_ways(embeddings, sets[:1], ["attention-max"]),
        *all_ways(embeddings, sets[1:], DISTANCE[::2]),
    ]
    assert_same([p.ways.astype(np.int64) for row in rows for p in row], wanted)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_equal_scores_go_to_the_lowest_way(name: str, offset: float) -> None:
    """All supports and queries of all classes are one vector: every score is tied."""
    one = np.full((1, 24), np.float32(offset + 0.1))
    same = np.repeat(one, len(LABELS), axis=0)
    assert (answers(same, LABELS, drawn(), name) == 0).all()


@pytest.mark.parametrize("name", [*DISTANCE, *COSINE])
@pytest.mark.parametrize("exponent", [-140, -60, 60, 120])
def test_extreme_embeddings_are_classified_as_their_exact_multiples(name: str, exponent: int) -> None:
    """Few significant bits, so that even the subnormal multiples are exact."""
    embeddings = np.round(some() * 4).astype(np.float32) / np.float32(16)
    extreme = np.ldexp(embeddings, exponent).astype(np.float32)
    assert (np.ldexp(extreme.astype(np.float64), -exponent) == embeddings).all()
    got = answers(extreme, LABELS, drawn(n_episodes=10), name)
    assert (got == precise(embeddings, drawn(n_episodes=10), name)).all()


@pytest.mark.parametrize("exponent", [-12, 10, 30, 60, 120])
def test_ridge_of_scaled_embeddings_is_ridge_with_a_scaled_penalty(exponent: int) -> None:
    scaled = np.ldexp(some(), exponent).astype(np.float32)
    got = answers(scaled, LABELS, drawn(n_episodes=10), "ridge")
    assert (got == answers(some(), LABELS, drawn(n_episodes=10), f"ridge:{2.0 ** (-2 * exponent)!r}")).all()


@pytest.mark.parametrize("exponent", [-12, -3, 3, 10])
def test_logistic_of_scaled_embeddings_is_logistic_with_a_scaled_penalty(exponent: int) -> None:
    scaled = np.ldexp(some(), exponent).astype(np.float32)
    got = answers(scaled, LABELS, drawn(n_episodes=10), "logistic")
    assert (got == answers(some(), LABELS, drawn(n_episodes=10), f"logistic:{2.0 ** (2 * exponent)!r}")).all()


@pytest.mark.parametrize(
    ("name", "exponent", "reason"),
    [
        ("ridge", -60, "ridge: the embeddings are so small against its penalty"),
        ("logistic", -60, "logistic: the embeddings are so small against its penalty"),
        ("logistic", 60, "the embeddings are too large"),
    ],
)
def test_embeddings_that_a_penalty_cannot_weigh_are_refused(name: str, exponent: int, reason: str) -> None:
    with pytest.raises(ScoringError, match=reason):
        answers(np.ldexp(some(), exponent).astype(np.float32), LABELS, drawn(n_episodes=5), name)


@pytest.mark.parametrize("name", [*DISTANCE, *COSINE])
def test_rows_of_very_different_size_in_one_store_are_compared_right(name: str) -> None:
    embeddings = some()
    rng = np.random.default_rng(0)
    factors = 10.0 ** rng.choice([-18, -6, 0, 6, 18], size=len(LABELS))
    mixed = (embeddings * factors[:, None]).astype(np.float32)
    assert (answers(mixed, LABELS, drawn(), name) == precise(mixed, drawn(), name)).all()


def test_small_rows_beside_one_huge_one_keep_their_order() -> None:
    embeddings = some() * np.float32(1e-18)
    embeddings[-1] = 1e18
    episodes = drawn()
    without = (episodes.support != len(LABELS) - 1).all(axis=(1, 2))
    without &= (episodes.query != len(LABELS) - 1).all(axis=(1, 2))
    assert without.any()
    for name in (*DISTANCE, *COSINE):
        got = answers(embeddings, LABELS, episodes, name)
        assert (got == precise(some() * np.float32(1e-18), episodes, name))[without].all()


@pytest.mark.parametrize("name", COSINE)
def test_zero_embeddings_have_cosine_zero_and_are_told_of(name: str) -> None:
    embeddings = some()
    embeddings[[3, 40, 41, 42, 100]] = 0
    with pytest.warns(
        UserWarning, match=r"5 of 160 embeddings are zero \('class-000/00003.png', .*count as 0"
    ):
        got = answers(embeddings, LABELS, drawn(), name)
    assert (got == precise(embeddings, drawn(), name)).all()


def test_zero_embeddings_are_nothing_special_to_distances() -> None:
    embeddings = some()
    embeddings[[3, 40, 41]] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = answers(embeddings, LABELS, drawn(), "1nn")
    assert (got == precise(embeddings, drawn(), "1nn")).all()


def test_supports_that_cancel_have_no_direction() -> None:
    """Prototypes of exactly opposite supports are zero, and cosines with them 0: the other way decides."""
    labels = even_labels(n_classes=2, n_per_class=3)
    rng = np.random.default_rng(0)
    one = rng.normal(size=16).astype(np.float32)
    # Way 0: x and -x, way 1: twice -q; the query is q, so way 0 has cosine 0 and way 1 has -1.
    q = rng.normal(size=16).astype(np.float32)
    embeddings = np.stack([one, -one, q, -q, -q, q])
    episodes = Episodes(
        classes=np.array([[0, 1]]),
        support=np.array([[[0, 1], [3, 4]]]),
        query=np.array([[[2], [5]]]),
        seed=0,
        sampler="by hand",
        sampling="with replacement",
    )
    assert answers(embeddings, labels, episodes, "prototype-cosine").tolist() == [[[0], [0]]]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("n_way", "n_shot"), [(1, 3), (8, 1), (8, 12), (2, 5)])
def test_any_number_of_ways_and_shots(name: str, n_way: int, n_shot: int) -> None:
    embeddings, episodes = some(), drawn(n_shot, n_way=n_way, n_episodes=5)
    if name == "knn:3" and n_way * n_shot < 3:
        pytest.skip("fewer supports than neighbours")
    assert (answers(embeddings, LABELS, episodes, name) == precise(embeddings, episodes, name)).all()


@pytest.mark.parametrize("n_shot", [1, 3])
@pytest.mark.parametrize("name", [*ALL[:-1], "attention:30"])
def test_near_ties_are_decided_as_in_float64(name: str, n_shot: int) -> None:
    """Supports that differ so little that their float32 products cannot tell."""
    rng = np.random.default_rng(0)
    near = np.repeat(rng.normal(size=(1, 300)), len(LABELS), axis=0)
    near *= 1 + 2.0**-17 * rng.integers(-4, 5, size=near.shape)
    embeddings, episodes = near.astype(np.float32), drawn(n_shot)
    got, wanted = answers(embeddings, LABELS, episodes, name), precise(embeddings, episodes, name)
    assert (got == wanted).all()


@pytest.mark.parametrize("name", [*COSINE, "attention:1000"])
@pytest.mark.parametrize("offset", [1e4, 1e5, 3e5])
def test_cosines_far_from_the_origin_are_told_apart(name: str, offset: float) -> None:
    """They differ by (spread / offset)^2: by less than 1e-11, and by more than their rounding."""
    embeddings, episodes = (some(64) + np.float32(offset)).astype(np.float32), drawn(1)
    support = embeddings[episodes.support[:, :, 0]].astype(np.longdouble)
    query = embeddings[episodes.query].reshape(episodes.n_episodes, -1, 64).astype(np.longdouble)
    support /= np.sqrt((support**2).sum(axis=-1, keepdims=True))
    query /= np.sqrt((query**2).sum(axis=-1, keepdims=True))
    wanted = np.einsum("ewd,end->enw", support, query).argmax(axis=2).reshape(episodes.query.shape)
    differing = (answers(embeddings, LABELS, episodes, name) != wanted).mean()
    assert differing <= 0.002


def test_a_penalty_beyond_float64_is_refused() -> None:
    with pytest.raises(ScoringError, match=r"did not converge .*, or a smaller C"):
        answers(some(), LABELS, drawn(), "logistic:1e300")


@pytest.mark.parametrize(("n_shot", "in_place"), [(1, True), (2, False)])
@pytest.mark.parametrize("name", ["1nn", "knn:3"])
def test_queries_are_searched_where_they_lie_only_with_few_supports_and_nobody_else_there(
    name: str, n_shot: int, *, in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[Block] = []
    really = engine.search_in_place

    def noted(block: Block) -> F32:
        searched.append(block)
        return really(block)

    monkeypatch.setattr(engine, "search_in_place", noted)
    all_ways(some(), [drawn(n_shot)], [name])
    assert bool(searched) is in_place
    searched.clear()
    all_ways(some(), [drawn(n_shot)], [name, "attention"])
    all_ways(np.float32(1e18) * some(), [drawn(n_shot)], [name])
    assert not searched


def lengths_to_three(dim: int, *, n_directions: int, seed: int = 0) -> F32:
    """Rows along a few directions but for a few units of rounding, one to three times as long."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(n_directions, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    rows = directions[rng.integers(0, n_directions, len(LABELS))] * rng.uniform(1, 3, (len(LABELS), 1))
    rows *= 1 + 2.0**-20 * rng.integers(-4, 5, size=rows.shape)
    return rows.astype(np.float32)


def test_near_ties_are_decided_as_in_float64_where_searching_and_cosines_share_a_product() -> None:
    embeddings, sets = lengths_to_three(300, n_directions=8), [drawn(1), drawn(4)]
    rows = prepare(embeddings)
    assert rows.centre is None
    assert 1 < rows.square_ratio <= engine.MOST_SQUARE_RATIO
    names = [name for name in ALL if name not in ("knn:3", "logistic")]
    wanted = [precise(embeddings, one, name) for one in sets for name in names]
    assert_same(all_ways(embeddings, sets, names, n_threads=2), wanted)


def block_of(embeddings: F32, episodes: Episodes, *, search: Callable[[Block], F32]) -> Block:
    """All of the episodes."""
    queries = episodes.query.reshape(episodes.n_episodes, -1)
    n_shot, dim = episodes.support.shape[2], embeddings.shape[1]
    return Block(
        prepare(embeddings),
        episodes.support,
        queries,
        Buffers(len(queries), n_way=5, n_shot=n_shot, n_queries=queries.shape[1], dim=dim, centred=False),
        search=search,
        queries_needed=True,
        from_products=True,
        from_distances=True,
    )


def test_several_threads_compute_at_the_same_time() -> None:
    """functools.cached_property of Python 3.11 lets one at a time."""
    embeddings, episodes = some(), drawn(3, n_episodes=4)
    both_there = threading.Barrier(2, timeout=20)

    def search(block: Block) -> F32:
        both_there.wait()
        return engine.search_gathered(block)

    blocks = [block_of(embeddings, episodes, search=search) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda block: block.distances, blocks)
    assert (first == second).all()
    assert blocks[0].distances is first


@pytest.mark.parametrize("dim", [1, 64, 640, 20_000])
def test_products_taken_from_distances_stay_within_the_bound_on_their_rounding(dim: int) -> None:
    embeddings, episodes = lengths_to_three(dim, n_directions=30), drawn(3, n_episodes=4)
    queries = episodes.query.reshape(4, -1)
    block = block_of(embeddings, episodes, search=engine.search_gathered)
    support, query = embeddings[episodes.support].astype(np.float64), embeddings[queries].astype(np.float64)
    exact = np.einsum("bwkd,bnd->bwkn", support, query)
    lengths = np.linalg.norm(support, axis=-1)[..., None] * np.linalg.norm(query, axis=-1)[:, None, None]
    assert (np.abs(block.products - exact) / lengths).max() <= block.product_rounding


def test_more_neighbours_than_supports_are_refused() -> None:
    embeddings = some()
    with pytest.raises(ScoringError, match="'knn:6' needs 6 supports, 5-way 1-shot episodes have 5"):
        score(*in_memory(embeddings, LABELS), [drawn(1)], classifiers=["knn:6"])


def test_a_classifier_that_fails_stops_all_threads() -> None:
    def fail(support: F32, query: F32) -> F32:
        message = "on purpose"
        raise ScoringError(message)

    broken = replace(build_classifier("1nn"), fast=None, scores=fail)
    with pytest.raises(ScoringError, match="on purpose"):
        predict(some(), [drawn()], [[broken]], n_threads=2)


def test_progress_adds_up_to_all_episodes() -> None:
    done: list[tuple[int, int]] = []

    def note(n_episodes: int, n_all: int) -> None:
        done.append((n_episodes, n_all))

    predict(some(), [drawn(), drawn(1)], [[build_classifier("1nn")]] * 2, n_threads=2, progress=note)
    assert sum(n for n, _ in done) == 40
    assert {n_all for _, n_all in done} == {40}


@pytest.mark.parametrize("dim", [1, 64, 640, 20_000])
def test_float32_products_stay_within_the_bound_on_their_rounding(dim: int) -> None:
    rng = np.random.default_rng(dim)
    for rows in (rng.normal(size=(30, dim)), rng.random((30, dim)), 1000 + rng.normal(size=(30, dim))):
        single = rows.astype(np.float32)
        double = single.astype(np.float64)
        norms = np.linalg.norm(double, axis=1)
        error = np.abs(single @ single.T - double @ double.T) / np.outer(norms, norms)
        assert error.max() <= product_error(dim)
