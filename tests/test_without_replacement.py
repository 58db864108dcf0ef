"""Episodes that share no image: used once, used up, drawn evenly, the same on every machine."""

from pathlib import Path

import numpy as np
import pytest
from checkout import run
from hypothesis import given
from hypothesis import strategies as st

from fsnl.cache.arrays import I64
from fsnl.cache.episode_file import read_episode_file
from fsnl.cache.errors import EpisodeError
from fsnl.cache.fingerprint import episodes_sha256
from fsnl.cache.reader import open_store
from fsnl.cache.schema import Episodes
from fsnl.pipeline.episodes import sample_episodes_without_replacement
from fsnl.pipeline.score import EpisodePlan, score_stores


def draw(labels: I64, *, n_way: int = 3, n_shot: int = 2, n_query: int = 3, n_episodes: int = 10_000,
         seed: int = 0) -> Episodes:  # fmt: skip
    return sample_episodes_without_replacement(
        labels, n_way=n_way, n_shot=n_shot, n_query=n_query, n_episodes=n_episodes, seed=seed
    )


def labels_of(counts: list[int]) -> I64:
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


many_counts = st.lists(st.integers(5, 40), min_size=3, max_size=8)


@given(many_counts, st.integers(0, 2**63 - 1))
def test_no_row_is_used_twice_and_each_is_of_its_class(counts: list[int], seed: int) -> None:
    labels = labels_of(counts)
    episodes = draw(labels, seed=seed)
    rows = np.concatenate([episodes.query, episodes.support], axis=2)
    assert len(np.unique(rows)) == rows.size
    assert (labels[rows] == episodes.classes[..., None]).all()
    assert all(len(set(row)) == 3 for row in episodes.classes.tolist())


@given(many_counts, st.integers(0, 99))
def test_it_ends_where_fewer_classes_than_ways_have_rows_left(counts: list[int], seed: int) -> None:
    episodes = draw(labels_of(counts), seed=seed)
    left = np.array(counts) - 5 * np.bincount(episodes.classes.ravel(), minlength=len(counts))
    assert (left >= 5).sum() < 3


@given(many_counts, st.integers(0, 99), st.integers(1, 10))
def test_an_episode_does_not_depend_on_how_many_are_asked_for(counts: list[int], seed: int, n: int) -> None:
    labels = labels_of(counts)
    few, all_there_are = draw(labels, seed=seed, n_episodes=n), draw(labels, seed=seed)
    assert few.n_episodes == min(n, all_there_are.n_episodes)
    for name in ("classes", "support", "query"):
        assert np.array_equal(getattr(few, name), getattr(all_there_are, name)[:n])


def test_rows_in_another_order_give_the_same_images_by_rank() -> None:
    labels = np.array([1, 0, 1, 0, 0, 1, 1, 0, 0, 1])
    rank = np.argsort(np.argsort(labels, kind="stable"))  # place of each row when sorted by class
    sizes = {"n_way": 2, "n_shot": 1, "n_query": 1}
    mixed, sorted_ = draw(labels, **sizes), draw(np.sort(labels), **sizes)
    assert np.array_equal(rank[mixed.query], sorted_.query)
    assert np.array_equal(rank[mixed.support], sorted_.support)


def test_classes_and_images_come_up_evenly() -> None:
    # The first episode of many seeds: 2 of 5 classes, 1 query of 6 rows. Within five standard errors.
    labels, n = labels_of([6] * 5), 4_000
    firsts = [draw(labels, n_way=2, n_shot=1, n_query=1, n_episodes=1, seed=s) for s in range(n)]
    classes = np.bincount(np.concatenate([e.classes.ravel() for e in firsts]), minlength=5)
    pairs = np.bincount([e.classes[0, 0] * 5 + e.classes[0, 1] for e in firsts], minlength=25)
    queries = np.bincount(np.concatenate([e.query.ravel() for e in firsts]), minlength=30)
    assert np.abs(classes - n * 2 / 5).max() < 5 * (n * 2 / 5 * 3 / 5) ** 0.5
    off_diagonal = pairs.reshape(5, 5)[~np.eye(5, dtype=bool)]
    assert off_diagonal.sum() == n
    assert np.abs(off_diagonal - n / 20).max() < 5 * (n / 20) ** 0.5
    assert np.abs(queries - n * 2 / 30).max() < 5 * (n * 2 / 30) ** 0.5


def test_golden_digest_has_not_changed() -> None:
    episodes = draw(labels_of([20, 25, 31, 7]), seed=7)
    assert (episodes.n_episodes, episodes.sampler) == (4, "fsnl-philox-once-1")
    assert episodes_sha256(episodes) == "9e7dc42944b701d2d71df6c68baa1d755358e843bd1e9534e8a23060187a3456"


def test_a_class_that_is_too_small_is_named() -> None:
    with pytest.raises(EpisodeError, match=r"class 1 has 4 images, fewer than n_shot \+ n_query = 2 \+ 3"):
        draw(labels_of([9, 4, 9]))


def test_scoring_reports_how_many_episodes_there_were(tiny_store: Path) -> None:
    # Six classes of twelve rows, 1 + 5 of them per episode and class: two portions each, so 4 to 6 episodes.
    plan = EpisodePlan(n_way=2, shots=(1,), n_query=5, without_replacement=True)
    summary = score_stores([open_store(tiny_store)], episodes=plan, classifiers=["1nn"]).runs[0].summary
    assert summary.sampling == "without replacement"
    assert 4 <= summary.n_episodes <= 6
    assert summary.total_queries == summary.n_episodes * 2 * 5


def test_the_commands_draw_without_replacement(tiny_store: Path, tmp_path: Path) -> None:
    options = ["--without-replacement", "--way", "2", "--shot", "1", "--query", "5"]
    sampled = run("fsnl-sample", tiny_store, *options, "--out", "once.h5", cwd=tmp_path)
    assert sampled.returncode == 0, sampled.stderr
    episodes = read_episode_file(tmp_path / "once.h5").episodes
    assert episodes.sampling == "without replacement"
    assert f"{episodes.n_episodes} episodes" in sampled.stderr
    assert "of at most 10,000" in sampled.stderr

    scored = run("fsnl-score", tiny_store, *options, cwd=tmp_path)
    assert scored.returncode == 0, scored.stderr
    assert "open 95 % interval over episodes that share no image" in scored.stdout
    assert f"{episodes.n_episodes} episodes, drawn without replacement" in scored.stdout

    both = run("fsnl-score", tiny_store, "--without-replacement", "--episodes-file", "once.h5", cwd=tmp_path)
    assert both.returncode == 2
    assert "--without-replacement cannot go with --episodes-file" in both.stderr
