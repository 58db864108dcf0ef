"""Result files with made-up answers, for tests of what comes after scoring: no embeddings, no classifier."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsnl.cache.fingerprint import episodes_sha256, labels_sha256, queries_sha256
from fsnl.cache.result_file import EpisodeSet, ResultFile, StoredRun, count_correct, write_result_file
from fsnl.cache.schema import RunSummary, SpentLabels
from fsnl.pipeline.episodes import sample_episodes, sample_episodes_without_replacement
from fsnl.pipeline.statistics import class_interval, episode_interval


@dataclass(frozen=True, slots=True)
class Made:
    """How a run is made: `skill` is the chance of a right answer in an average class."""

    classifier: str = "1nn"
    encoder: str = "net-a"
    n_shot: int = 1
    skill: float = 0.5
    transform: str = "none"
    store: str = "a.h5"
    dataset: str = "folder"


@dataclass(frozen=True, slots=True)
class Images:
    """Labels that episodes are drawn from, and how many of these."""

    n_classes: int = 8
    n_per_class: int = 40
    n_way: int = 5
    n_query: int = 15
    n_episodes: int = 200
    seed: int = 0
    class_names: tuple[str, ...] = ()
    without_replacement: bool = False


def make_results(runs: Sequence[Made], *, images: Images | None = None) -> ResultFile:
    """Runs whose answers are right more often in some classes, and in some episodes for all runs alike."""
    made = [make_run(run, images=images or Images()) for run in runs]
    return ResultFile(episode_sets={s.key: s for s, _ in made}, runs=tuple(run for _, run in made))


def make_run(run: Made, *, images: Images) -> tuple[EpisodeSet, StoredRun]:
    labels = np.repeat(np.arange(images.n_classes, dtype=np.int64), images.n_per_class)
    sample = sample_episodes_without_replacement if images.without_replacement else sample_episodes
    episodes = sample(
        labels,
        n_way=images.n_way,
        n_shot=run.n_shot,
        n_query=images.n_query,
        n_episodes=images.n_episodes,
        seed=images.seed,
    )
    names = images.class_names or tuple(f"class-{c}" for c in range(images.n_classes))
    ids = tuple(f"{names[c]}/{row}.png" for row, c in enumerate(labels))
    drawn = EpisodeSet(
        episodes=episodes,
        labels=labels,
        class_names=names,
        image_ids=ids,
        labels_sha256=labels_sha256(names, ids, labels),
    )
    return drawn, _answered(run, drawn)


def _answered(run: Made, drawn: EpisodeSet) -> StoredRun:
    episodes = drawn.episodes
    shape, n_way = episodes.query.shape, episodes.n_way
    luck = np.random.default_rng(1)  # the same for all runs on these queries: they are correlated
    hardness = luck.normal(0, 0.1, len(drawn.class_names))[episodes.classes][:, :, None]
    right = luck.uniform(size=shape) + luck.normal(0, 0.1, (shape[0], 1, 1)) < run.skill + hardness
    right |= np.random.default_rng(len(run.classifier) + run.n_shot).uniform(size=shape) < 0.02
    own = np.arange(n_way)[:, None]
    other = (own + luck.integers(1, max(2, n_way), size=shape)) % n_way
    predictions = np.where(right, own, other).astype(np.uint8)
    return StoredRun(
        summary=_summary(run, drawn, predictions=predictions),
        episodes=drawn.key,
        predictions=predictions,
        correct=count_correct(predictions),
    )


def _summary(
    run: Made, drawn: EpisodeSet, *, predictions: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]"
) -> RunSummary:
    episodes = drawn.episodes
    correct = count_correct(predictions)
    accuracies = correct.sum(axis=1, dtype=np.int64) / (episodes.n_way * episodes.n_query)
    over_episodes, over_classes = episode_interval(accuracies), class_interval(accuracies, episodes.classes)
    return RunSummary(
        store=run.store,
        dataset=run.dataset,
        split="test",
        encoder=run.encoder,
        embedding_dim=64,
        image_size=32,
        n_way=episodes.n_way,
        n_shot=episodes.n_shot,
        n_query=episodes.n_query,
        n_episodes=episodes.n_episodes,
        seed=episodes.seed,
        sampling=episodes.sampling,
        labels_sha256=drawn.labels_sha256,
        queries_sha256=queries_sha256(episodes),
        episodes_sha256=episodes_sha256(episodes),
        classifier=run.classifier,
        transform=run.transform,
        accuracy=float(accuracies.mean()),
        total_correct=int(correct.sum(dtype=np.int64)),
        total_queries=episodes.query.size,
        sd=over_episodes.sd,
        ci95=over_episodes.half_width,
        ci95_reason=over_episodes.reason,
        ci95_class=over_classes.half_width,
        ci95_class_reason=over_classes.reason,
        labels_used=SpentLabels(train=0, val=0, support_per_episode=episodes.n_way * episodes.n_shot),
        seconds=0.25,
    )


def write_results(path: Path, runs: Sequence[Made], *, images: Images | None = None) -> Path:
    """A result file of such runs."""
    write_result_file(path, make_results(runs, images=images))
    return path
