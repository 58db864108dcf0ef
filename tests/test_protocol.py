"""`--protocol bharti2020`: its six runs, what conflicts with it, and the authors' steps in scikit-learn."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import Normalizer, StandardScaler
from stores import clusters, even_labels, header, listing
from threadpoolctl import threadpool_limits

from fsnl.cache.arrays import F32, F64, I64
from fsnl.cache.reader import open_store
from fsnl.cache.result_file import read_result_file
from fsnl.cache.writer import new_store
from fsnl.pipeline.cli.score import main

RUNS = [
    *(("1nn", "zscore:train", 1), ("attention-max", "zscore:train", 1)),
    *(("1nn", "zscore:train", 5), ("attention-max", "zscore:train", 5)),
    *(("prototype", "zscore:train", 5), ("mean-cosine", "zscore:train", 5)),
]
N_COMPARED = 50


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits of clusters, dimensions of very different size, one of them constant."""
    path = tmp_path_factory.mktemp("protocol") / "two.h5"
    size = np.geomspace(0.01, 100, 20, dtype=np.float32)
    with new_store(path, header(), overwrite=True) as writer:
        for seed, split in enumerate(("train", "test")):
            rows = size * (clusters(n_classes=8, n_per_class=25, dim=20, spread=2.0, seed=seed) + 1)
            rows[:, 4] = 7.0
            labels = even_labels(n_classes=8, n_per_class=25)
            batch = [(rows.astype(np.float32), np.arange(len(rows), dtype=np.uint64))]
            names = [f"{split}-{c}" for c in range(8)]
            writer.add_split(listing(labels, split=split, class_names=names), batch, request={})
    return path


def invoke(*given: str | Path) -> str:
    result = CliRunner().invoke(main, [*map(str, given), "--protocol", "bharti2020"])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_is_exactly_six_runs_in_this_order(store: Path) -> None:
    runs = json.loads(invoke(store, "--format", "json"))["runs"]
    assert [(run["classifier"], run["transform"], run["n_shot"]) for run in runs] == RUNS
    assert {(run["n_way"], run["n_query"], run["n_episodes"]) for run in runs} == {(5, 15, 10_000)}


def test_what_it_says_may_be_said_again(store: Path) -> None:
    assert invoke(store, "--way", "5", "--shot", "1", "--shot", "5", "--query", "15", "--episodes", "10000")


@pytest.mark.parametrize(
    "given",
    [
        ["--way", "20"],
        ["--shot", "1"],
        ["--query", "10"],
        ["--episodes", "600"],
        ["--classifier", "1nn"],
        ["--transform", "none"],
        ["--without-replacement"],
        ["--episodes-file", "episodes.h5"],
    ],
)
def test_options_that_conflict_with_it_are_refused(store: Path, given: list[str]) -> None:
    result = CliRunner().invoke(main, [str(store), "--protocol", "bharti2020", *given])
    assert result.exit_code == 2
    assert f"{given[0]} cannot go with --protocol bharti2020" in " ".join(result.output.split())


def test_without_a_train_split_it_says_how_to_get_one(tmp_path: Path, tiny_store: Path) -> None:
    result = CliRunner().invoke(main, [str(tiny_store), "--protocol", "bharti2020"])
    assert result.exit_code == 1
    assert "fewer than n_shot + n_query" in result.output or "fsnl-extract --split train" in result.output


def nearest(support: F64, query: F64, ways: I64) -> I64:
    return np.asarray(KNeighborsClassifier(1, algorithm="brute").fit(support, ways).predict(query))


def largest_weight(support: F64, query: F64, ways: I64) -> I64:
    unit = Normalizer().transform
    return np.asarray(ways[(unit(query) @ unit(support).T).argmax(axis=1)])


def nearest_mean(support: F64, query: F64, ways: I64) -> I64:
    means = support.reshape(5, -1, support.shape[1]).mean(axis=1)
    return nearest(means, query, np.arange(5))


def centroid_attention(support: F64, query: F64, ways: I64) -> I64:
    unit = Normalizer().transform
    centroids = unit(support).reshape(5, -1, support.shape[1]).mean(axis=1)
    return np.asarray((unit(query) @ centroids.T).argmax(axis=1))


STEPS: dict[str, Callable[[F64, F64, I64], I64]] = {
    "1nn": nearest,
    "attention-max": largest_weight,
    "prototype": nearest_mean,
    "mean-cosine": centroid_attention,
}


def assert_equals_the_authors_steps(train: F32, test: F32, results: Path, *, n_compared: int) -> None:
    """Standardise by train, then each method, one episode at a time, with scikit-learn."""
    standard = StandardScaler().fit(train.astype(np.float64)).transform(test.astype(np.float64))
    content = read_result_file(results)
    assert [(r.summary.classifier, r.summary.transform, r.summary.n_shot) for r in content.runs] == RUNS
    for run in content.runs:
        episodes = content.episode_sets[run.episodes].episodes
        ways = np.repeat(np.arange(5), episodes.n_shot)
        answer = STEPS[run.summary.classifier]
        with threadpool_limits(1):
            for e in range(n_compared):
                support, query = standard[episodes.support[e].ravel()], standard[episodes.query[e].ravel()]
                assert (run.predictions[e].ravel() == answer(support, query, ways)).all()


def test_it_equals_the_authors_steps_done_with_scikit_learn(store: Path, tmp_path: Path) -> None:
    invoke(store, "--seed", "3", "--out", tmp_path / "results.h5")
    opened = open_store(store)
    train, test = opened.features("train").embeddings, opened.features("test").embeddings
    assert_equals_the_authors_steps(train, test, tmp_path / "results.h5", n_compared=N_COMPARED)
