"""Stage 3: feature store, episodes and classifiers to accuracies, with every prediction kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsnl.cache.arrays import F32, I64
from fsnl.cache.episode_file import check_fits, read_episode_file
from fsnl.cache.errors import EpisodeError, ScoringError
from fsnl.cache.fingerprint import episodes_sha256, queries_sha256
from fsnl.cache.reader import FeatureStore
from fsnl.cache.result_file import EpisodeSet, ResultFile, StoredRun, count_correct
from fsnl.cache.schema import EncoderInfo, Episodes, Features, RunSummary, SpentLabels
from fsnl.pipeline.classifiers.engine import Prediction, predict
from fsnl.pipeline.classifiers.registry import build_classifier
from fsnl.pipeline.cores import usable_cores
from fsnl.pipeline.episodes import sample_episodes, sample_episodes_without_replacement
from fsnl.pipeline.statistics import class_interval, episode_interval

# Values looked at in one go when searching for NaN.
CHECK_VALUES = 1 << 20


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """Which episodes to draw.

    For every number of shots the same queries, with nested supports. Without replacement no two episodes of
    a number of shots share an image, `n_episodes` is the most there may be, and nothing nests.
    """

    n_way: int = 5
    shots: tuple[int, ...] = (1, 5)
    n_query: int = 15
    n_episodes: int = 10_000
    seed: int = 0
    without_replacement: bool = False


def score_stores(
    stores: Sequence[FeatureStore],
    *,
    episodes: EpisodePlan | Sequence[Path],
    classifiers: Sequence[str],
    split: str = "test",
    n_threads: int | None = None,
) -> ResultFile:
    """Score every store on the same episodes.

    Args:
        stores: opened feature stores.
        episodes: a plan to draw from each store's labels, or episode files made for them.
        classifiers: their names.
        split: which split of each store.
        n_threads: worker threads, None for one per core; no result depends on it.

    Returns:
        Runs in the order stores, episodes, classifiers, and the episodes they used.

    Raises:
        CacheError: a store or episode file that cannot be used, or does not fit the other.
        EpisodeError: the labels cannot give such episodes.
        ScoringError: unknown classifier, or embeddings that are not finite.
    """
    sets: dict[str, EpisodeSet] = {}
    runs: list[StoredRun] = []
    for store in stores:
        features = store.features(split)
        drawn = _episodes(store, features, episodes)
        runs += score(store, features, drawn, classifiers=classifiers, n_threads=n_threads)
        for episode_set in (_episode_set(features, one) for one in drawn):
            sets.setdefault(episode_set.key, episode_set)
    return ResultFile(episode_sets=sets, runs=tuple(runs))


def score(
    store: FeatureStore,
    features: Features,
    episode_sets: Sequence[Episodes],
    *,
    classifiers: Sequence[str],
    n_threads: int | None = None,
) -> list[StoredRun]:
    """Score one split of one store.

    Args:
        store: where `features` come from; names the encoder in the results.
        features: N embeddings with their labels.
        episode_sets: index arrays into its rows.
        classifiers: names, `1nn`, `attention`, `attention-max`.
        n_threads: worker threads, None for one per core; no result depends on it.

    Returns:
        One run per episode set and classifier, in that order, with predictions (E, W, Q).

    Raises:
        EpisodeError: rows that these features do not have, or of other classes.
        ScoringError: unknown classifier, or embeddings that are not finite.
    """
    built = [build_classifier(name) for name in classifiers]
    for episodes in episode_sets:
        _check_episodes(episodes, features)
    _check_finite(features, store=store.path)
    per_set = [built for _ in episode_sets]
    answers = predict(features.embeddings, episode_sets, per_set, n_threads=n_threads or usable_cores())
    return [
        _run(store, features, episodes, classifier=classifier.name, prediction=prediction)
        for episodes, row in zip(episode_sets, answers, strict=True)
        for classifier, prediction in zip(built, row, strict=True)
    ]


def encoder_label(encoder: EncoderInfo) -> str:
    """One text that names an encoder in results, `torchvision:resnet18 random:0`."""
    return encoder.name if encoder.weights == "none" else f"{encoder.name} {encoder.weights}"


def _episodes(
    store: FeatureStore, features: Features, wanted: EpisodePlan | Sequence[Path]
) -> list[Episodes]:
    if isinstance(wanted, EpisodePlan):
        sample = sample_episodes_without_replacement if wanted.without_replacement else sample_episodes
        return [
            sample(
                features.labels,
                n_way=wanted.n_way,
                n_shot=n_shot,
                n_query=wanted.n_query,
                n_episodes=wanted.n_episodes,
                seed=wanted.seed,
                class_names=features.class_names,
            )
            for n_shot in wanted.shots
        ]
    read = []
    for path in wanted:
        content = read_episode_file(path)
        check_fits(path, content, features, store=store.path)
        read.append(content.episodes)
    return read


def _episode_set(features: Features, episodes: Episodes) -> EpisodeSet:
    return EpisodeSet(
        episodes=episodes,
        labels=features.labels,
        class_names=features.class_names,
        image_ids=features.image_ids,
        labels_sha256=features.labels_sha256,
    )


def _run(
    store: FeatureStore, features: Features, episodes: Episodes, *, classifier: str, prediction: Prediction
) -> StoredRun:
    correct = count_correct(prediction.ways)
    total, right = episodes.query.size, int(correct.sum(dtype=np.int64))
    per_episode = correct.sum(axis=1, dtype=np.int64) / (episodes.n_way * episodes.n_query)
    interval = episode_interval(per_episode)
    over_classes = class_interval(per_episode, episodes.classes)
    header, preprocessing = store.header, store.header.preprocessing
    summary = RunSummary(
        store=str(store.path),
        dataset=header.dataset.name,
        split=features.split,
        encoder=encoder_label(header.encoder),
        embedding_dim=features.embeddings.shape[1],
        image_size=None if preprocessing is None else preprocessing.crop,
        n_way=episodes.n_way,
        n_shot=episodes.n_shot,
        n_query=episodes.n_query,
        n_episodes=episodes.n_episodes,
        seed=episodes.seed,
        sampling=episodes.sampling,
        labels_sha256=features.labels_sha256,
        queries_sha256=queries_sha256(episodes),
        episodes_sha256=episodes_sha256(episodes),
        classifier=classifier,
        transform="none",
        accuracy=right / total,
        total_correct=right,
        total_queries=total,
        sd=interval.sd,
        ci95=interval.half_width,
        ci95_reason=interval.reason,
        ci95_class=over_classes.half_width,
        ci95_class_reason=over_classes.reason,
        labels_used=SpentLabels(
            train=header.encoder.labels_used.train,
            val=header.encoder.labels_used.val,
            support_per_episode=episodes.n_way * episodes.n_shot,
        ),
        seconds=prediction.seconds,
    )
    key = _episode_set(features, episodes).key
    return StoredRun(summary=summary, episodes=key, predictions=prediction.ways, correct=correct)


def _check_episodes(episodes: Episodes, features: Features) -> None:
    n_rows = len(features.labels)
    for name, rows in (("support", episodes.support), ("query", episodes.query)):
        if rows.size == 0 or rows.min() < 0 or rows.max() >= n_rows:
            msg = f"episodes name {name} rows outside 0..{n_rows - 1} of split {features.split!r}"
            raise EpisodeError(msg)
        if not (features.labels[rows] == episodes.classes[..., None]).all():
            msg = f"episodes have {name} rows of other classes than those they name: other labels"
            raise EpisodeError(msg)


def _check_finite(features: Features, *, store: Path) -> None:
    bad = non_finite_rows(features.embeddings)
    if bad.size:
        names = ", ".join(repr(features.image_ids[row]) for row in bad[:3])
        more = ", ..." if bad.size > 3 else ""
        msg = (
            f"{store}: {bad.size} of {len(features.embeddings)} embeddings hold NaN or infinity "
            f"({names}{more}); extract again with another precision, or leave the images out"
        )
        raise ScoringError(msg)


def non_finite_rows(embeddings: F32) -> I64:
    """Rows that hold NaN or infinity, streamed.

    Args:
        embeddings: (N, D) float32.

    Returns:
        (n,) int64, ascending.
    """
    bad = []
    step = max(1, CHECK_VALUES // max(1, embeddings.shape[1]))
    for first in range(0, len(embeddings), step):
        chunk = embeddings[first : first + step]
        with np.errstate(over="ignore", invalid="ignore"):
            suspicious = not np.isfinite(chunk.sum())  # a finite sum has finite terms, and is cheaper
        if suspicious:
            bad.append(first + np.flatnonzero(~np.isfinite(chunk).all(axis=1)))
    return np.concatenate(bad).astype(np.int64) if bad else np.empty(0, dtype=np.int64)
