"""Scoring: the record of each run, what it does not depend on, and what is refused."""

import json
import math
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import reference
from stores import clusters, even_labels, in_memory, write_store

from fsnl.cache.arrays import F32
from fsnl.cache.episode_file import EpisodeFile, write_episode_file
from fsnl.cache.errors import EpisodeError, FsnlError, MismatchError, ScoringError
from fsnl.cache.fingerprint import episodes_sha256, queries_sha256
from fsnl.cache.reader import FeatureStore, open_store
from fsnl.cache.result_file import ResultFile, StoredRun
from fsnl.cache.schema import LabelsUsed
from fsnl.pipeline.episodes import sample_episodes
from fsnl.pipeline.report.json import to_json
from fsnl.pipeline.score import EpisodePlan, score, score_stores

CLASSIFIERS = ("1nn", "attention", "attention-max")
PLAN = EpisodePlan(n_way=4, shots=(1, 3), n_query=5, n_episodes=300, seed=7)
LABELS = even_labels(n_classes=6, n_per_class=12)


@pytest.fixture
def store(tiny_store: Path) -> FeatureStore:
    return open_store(tiny_store)


@pytest.fixture
def scored(store: FeatureStore) -> ResultFile:
    return score_stores([store], episodes=PLAN, classifiers=CLASSIFIERS)


def without_time(run: StoredRun) -> dict[str, object]:
    return {**asdict(run.summary), "seconds": 0.0}


def assert_same_answers(one: ResultFile, other: ResultFile) -> None:
    assert [without_time(run) for run in one.runs] == [without_time(run) for run in other.runs]
    for run, same in zip(one.runs, other.runs, strict=True):
        np.testing.assert_array_equal(run.predictions, same.predictions)
        np.testing.assert_array_equal(run.correct, same.correct)


def test_runs_come_in_the_order_stores_shots_classifiers(tiny_store: Path, tmp_path: Path) -> None:
    embeddings = clusters(n_classes=6, n_per_class=12, dim=3)
    other = write_store(tmp_path / "other.h5", embeddings, LABELS, encoder="others")
    stores = [open_store(other), open_store(tiny_store)]
    plan = replace(PLAN, shots=(3, 1), n_episodes=20)
    runs = score_stores(stores, episodes=plan, classifiers=("attention", "1nn")).runs
    found = [(run.summary.encoder, run.summary.n_shot, run.summary.classifier) for run in runs]
    assert found == list(product(("others", "tests"), (3, 1), ("attention", "1nn")))


def test_the_record_says_what_was_scored(scored: ResultFile, tiny_store: Path) -> None:
    features = open_store(tiny_store).features("test")
    for run in scored.runs:
        summary = run.summary
        assert (summary.store, summary.dataset, summary.split) == (str(tiny_store), "folder", "test")
        assert (summary.encoder, summary.embedding_dim, summary.image_size) == ("tests", 8, 32)
        assert (summary.n_way, summary.n_query, summary.n_episodes, summary.seed) == (4, 5, 300, 7)
        assert (summary.sampling, summary.transform) == ("with replacement", "none")
        assert summary.labels_sha256 == features.labels_sha256
        assert asdict(summary.labels_used) == {
            "train": 0,
            "val": 0,
            "support_per_episode": 4 * summary.n_shot,
        }
        assert summary.seconds > 0
        episodes = scored.episode_sets[run.episodes].episodes
        assert summary.episodes_sha256 == episodes_sha256(episodes)
        assert summary.queries_sha256 == queries_sha256(episodes)
        assert run.episodes == f"{summary.episodes_sha256}-{features.labels_sha256[:8]}"


def test_shots_of_one_seed_are_paired(scored: ResultFile) -> None:
    assert len({run.summary.queries_sha256 for run in scored.runs}) == 1
    assert len({run.summary.episodes_sha256 for run in scored.runs}) == 2


def test_accuracy_is_right_answers_over_all_queries(scored: ResultFile) -> None:
    for run in scored.runs:
        summary = run.summary
        ways = np.arange(4)[:, None]
        right = run.predictions == ways
        assert summary.total_queries == 300 * 4 * 5 == run.predictions.size
        assert summary.total_correct == right.sum()
        assert summary.accuracy == summary.total_correct / summary.total_queries
        np.testing.assert_array_equal(run.correct, right.sum(axis=2))
        assert 0.25 < summary.accuracy < 0.95, "better than chance, and with room for mistakes"


def test_accuracy_equals_that_of_one_query_at_a_time(store: FeatureStore) -> None:
    plan = replace(PLAN, n_episodes=40)
    embeddings = store.features("test").embeddings
    for run in score_stores([store], episodes=plan, classifiers=CLASSIFIERS).runs:
        classes, support, query = reference.draw_episodes(
            LABELS.tolist(), n_way=4, n_shot=run.summary.n_shot, n_query=5, n_episodes=40, seed=7
        )
        n_right = sum(
            slow_answer(embeddings, support[e], query[e][way][q], run.summary.classifier) == way
            for e, way, q in product(range(40), range(4), range(5))
        )
        assert run.summary.total_correct == n_right
        assert len(classes) == 40


def slow_answer(embeddings: F32, support: list[list[int]], query: int, classifier: str) -> int:
    shots = [[embeddings[row].tolist() for row in rows] for rows in support]
    if classifier == "1nn":
        return reference.nearest_way(shots, embeddings[query].tolist())
    weights, best = reference.attention(shots, embeddings[query].tolist())
    return best if classifier == "attention-max" else weights.index(max(weights))


def test_the_interval_over_episodes_is_students() -> None:
    embeddings = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    labels = even_labels(n_classes=4, n_per_class=10)
    drawn = sample_episodes(labels, n_way=2, n_shot=1, n_query=2, n_episodes=10, seed=0)
    (run,) = score(*in_memory(embeddings, labels), [drawn], classifiers=["1nn"])
    accuracies = run.correct.sum(axis=1) / 4  # ten episodes of two ways of two queries
    variance = ((accuracies - accuracies.mean()) ** 2).sum() / 9
    assert run.summary.sd == pytest.approx(math.sqrt(variance))
    # Student's t, 9 degrees of freedom, 97.5 %: 2.262157
    assert run.summary.ci95 == pytest.approx(2.262157 * math.sqrt(variance / 10), rel=1e-6)
    assert run.summary.ci95_reason is None


def test_one_episode_has_no_interval_and_says_why(store: FeatureStore) -> None:
    (run,) = score_stores([store], episodes=replace(PLAN, shots=(1,), n_episodes=1), classifiers=["1nn"]).runs
    assert (run.summary.sd, run.summary.ci95) == (None, None)
    assert run.summary.ci95_reason == "one episode has no spread"


def test_where_there_is_no_interval_over_classes_there_is_a_reason(store: FeatureStore) -> None:
    for n_way in (4, 6):  # with six of six, every class is in every episode
        plan = replace(PLAN, n_way=n_way, n_episodes=50)
        for run in score_stores([store], episodes=plan, classifiers=["1nn"]).runs:
            assert run.summary.ci95_class is not None or run.summary.ci95_class_reason


@pytest.mark.parametrize("n_threads", [1, 2, 3, 8])
def test_the_number_of_threads_changes_no_answer(
    n_threads: int, scored: ResultFile, store: FeatureStore
) -> None:
    again = score_stores([store], episodes=PLAN, classifiers=CLASSIFIERS, n_threads=n_threads)
    assert_same_answers(again, scored)


def test_more_threads_than_episodes_are_no_harm(store: FeatureStore) -> None:
    plan = replace(PLAN, n_episodes=2)
    one, many = (
        score_stores([store], episodes=plan, classifiers=CLASSIFIERS, n_threads=n_threads)
        for n_threads in (1, 16)
    )
    assert_same_answers(one, many)


def test_shots_asked_alone_or_together_give_the_same_answers(scored: ResultFile, store: FeatureStore) -> None:
    alone = [
        run
        for n_shot in PLAN.shots
        for run in score_stores(
            [store], episodes=replace(PLAN, shots=(n_shot,)), classifiers=CLASSIFIERS
        ).runs
    ]
    assert_same_answers(ResultFile({}, tuple(alone)), scored)


def test_classifiers_asked_alone_or_together_give_the_same_answers(
    scored: ResultFile, store: FeatureStore
) -> None:
    by_name = {name: score_stores([store], episodes=PLAN, classifiers=[name]).runs for name in CLASSIFIERS}
    alone = [by_name[name][i] for i in range(len(PLAN.shots)) for name in CLASSIFIERS]
    assert_same_answers(ResultFile({}, tuple(alone)), scored)


def test_nothing_depends_on_the_order_in_which_it_is_asked(scored: ResultFile, store: FeatureStore) -> None:
    plan = replace(PLAN, shots=tuple(reversed(PLAN.shots)))
    turned = score_stores([store], episodes=plan, classifiers=tuple(reversed(CLASSIFIERS)))
    assert_same_answers(ResultFile({}, tuple(reversed(turned.runs))), scored)


def test_the_first_episodes_have_the_same_answers_however_many_follow(
    scored: ResultFile, store: FeatureStore
) -> None:
    few = score_stores([store], episodes=replace(PLAN, n_episodes=50), classifiers=CLASSIFIERS)
    for run, longer in zip(few.runs, scored.runs, strict=True):
        np.testing.assert_array_equal(run.predictions, longer.predictions[:50])


def test_embeddings_with_all_but_equal_scores_are_answered_alike_in_any_company(tmp_path: Path) -> None:
    # Rows that differ in the last digit alone: float32 rounding would decide, and differently by BLAS kernel.
    rng = np.random.default_rng(0)
    base = rng.normal(size=640).astype(np.float32)
    embeddings = np.tile(base, (72, 1))
    embeddings[np.arange(72), rng.integers(0, 640, 72)] *= np.float32(1 + 2**-22)
    path = write_store(tmp_path / "close.h5", embeddings, LABELS)
    plan = replace(PLAN, shots=(1, 2, 5), n_episodes=20)
    together = score_stores([open_store(path)], episodes=plan, classifiers=CLASSIFIERS, n_threads=2)
    for i, (n_shot, name) in enumerate(product(plan.shots, CLASSIFIERS)):
        one = replace(plan, shots=(n_shot,))
        (alone,) = score_stores([open_store(path)], episodes=one, classifiers=[name], n_threads=1).runs
        np.testing.assert_array_equal(alone.predictions, together.runs[i].predictions)


def test_labels_of_an_encoder_of_unknown_training_are_null(tmp_path: Path) -> None:
    unknown = LabelsUsed(train=None, val=None)
    embeddings = clusters(n_classes=6, n_per_class=12, dim=3)
    path = write_store(tmp_path / "unknown.h5", embeddings, LABELS, labels_used=unknown)
    result = score_stores([open_store(path)], episodes=replace(PLAN, n_episodes=5), classifiers=["1nn"])
    run = json.loads(to_json([stored.summary for stored in result.runs]))["runs"][0]
    assert run["labels_used"] == {"train": None, "val": None, "support_per_episode": 4}


@pytest.mark.parametrize(("weights", "named"), [("none", "tests"), ("random:0", "tests random:0")])
def test_an_encoder_is_named_with_its_weights(weights: str, named: str, store: FeatureStore) -> None:
    encoder = replace(store.header.encoder, weights=weights)
    other = replace(store, header=replace(store.header, encoder=encoder))
    runs = score_stores([other], episodes=replace(PLAN, n_episodes=5), classifiers=["1nn"]).runs
    assert {run.summary.encoder for run in runs} == {named}


def test_an_episode_file_gives_what_drawing_gives(
    store: FeatureStore, scored: ResultFile, tmp_path: Path
) -> None:
    features = store.features("test")
    files = []
    for n_shot in PLAN.shots:
        drawn = sample_episodes(features.labels, n_way=4, n_shot=n_shot, n_query=5, n_episodes=300, seed=7)
        files.append(tmp_path / f"{n_shot}.h5")
        write_episode_file(files[-1], EpisodeFile(drawn, "test", features.labels_sha256))
    assert_same_answers(score_stores([store], episodes=files, classifiers=CLASSIFIERS), scored)


def test_an_episode_file_for_other_labels_is_refused(store: FeatureStore, tmp_path: Path) -> None:
    drawn = sample_episodes(LABELS, n_way=2, n_shot=1, n_query=1, n_episodes=3, seed=0)
    path = tmp_path / "episodes.h5"
    write_episode_file(path, EpisodeFile(drawn, "test", "0" * 64))
    with pytest.raises(
        MismatchError, match=r"episodes.h5: drawn from split 'test' with labels 00000000\.\.\."
    ):
        score_stores([store], episodes=[path], classifiers=["1nn"])


def test_episodes_of_rows_that_are_not_there_are_refused() -> None:
    embeddings = clusters(n_classes=6, n_per_class=12, dim=3)
    store, features = in_memory(embeddings, LABELS)
    drawn = sample_episodes(LABELS, n_way=2, n_shot=1, n_query=1, n_episodes=3, seed=0)
    beyond = drawn.support.copy()
    beyond[1, 1, 0] = 72
    with pytest.raises(EpisodeError, match=r"episodes name support rows outside 0\.\.71"):
        score(store, features, [replace(drawn, support=beyond)], classifiers=["1nn"])
    below = drawn.query.copy()
    below[0, 0, 0] = -1
    with pytest.raises(EpisodeError, match=r"episodes name query rows outside 0\.\.71"):
        score(store, features, [replace(drawn, query=below)], classifiers=["1nn"])
    with pytest.raises(EpisodeError, match="rows of other classes than those they name"):
        score(store, features, [replace(drawn, classes=(drawn.classes + 1) % 6)], classifiers=["1nn"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_embeddings_that_are_not_finite_are_refused_by_image(value: float, tmp_path: Path) -> None:
    embeddings = clusters(n_classes=6, n_per_class=12, dim=3)
    embeddings[[13, 40, 41, 70], 1] = value
    path = write_store(tmp_path / "bad.h5", embeddings, LABELS)
    with pytest.raises(ScoringError) as caught:
        score_stores([open_store(path)], episodes=PLAN, classifiers=["1nn"])
    assert "bad.h5: 4 of 72 embeddings hold NaN or infinity ('class-001/00013.png', " in str(caught.value)
    assert ", ...)" in str(caught.value)


def test_large_but_finite_embeddings_are_scored(tmp_path: Path) -> None:
    # Their sum overflows float32; none of them does.
    embeddings = np.full((72, 40), 3e37, dtype=np.float32)
    path = write_store(tmp_path / "large.h5", embeddings, LABELS)
    runs = score_stores(
        [open_store(path)], episodes=replace(PLAN, n_episodes=5), classifiers=["attention"]
    ).runs
    assert [run.summary.accuracy for run in runs] == [0.25, 0.25], "all alike: way 0 answers for all"


def test_a_classifier_that_there_is_not_is_refused_with_those_there_are(store: FeatureStore) -> None:
    with pytest.raises(
        ScoringError, match=r"no classifier 'atention', there are 1nn, .*attention.*did you mean"
    ):
        score_stores([store], episodes=PLAN, classifiers=["atention"])


def test_a_refusal_is_one_of_ours() -> None:
    assert issubclass(ScoringError, FsnlError)
    assert issubclass(ScoringError, ValueError)
