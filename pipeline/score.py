"""Stage 3: feature store, episodes and classifiers to accuracies, with every prediction kept."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsnl.cache.arrays import F32
from fsnl.cache.episode_file import check_fits, read_episode_file
from fsnl.cache.errors import EpisodeError
from fsnl.cache.fingerprint import episodes_sha256, queries_sha256
from fsnl.cache.reader import FeatureStore
from fsnl.cache.result_file import EpisodeSet, ResultFile, StoredRun, count_correct
from fsnl.cache.schema import EncoderInfo, Episodes, Features, RunSummary, SpentLabels
from fsnl.pipeline.classifier_names import Names, build_classifiers, check_names
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.engine import Prediction, predict
from fsnl.pipeline.cores import usable_cores
from fsnl.pipeline.episodes import sample_episodes, sample_episodes_without_replacement
from fsnl.pipeline.finite import images, zero_rows
from fsnl.pipeline.fitting import transform
from fsnl.pipeline.statistics import class_interval, episode_interval
from fsnl.pipeline.transforms.chain import parse_chain


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
    classifiers: Names,
    transforms: Sequence[str] = ("none",),
    split: str = "test",
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ResultFile:
    """Score every store on the same episodes.

    Args:
        stores: opened feature stores.
        episodes: a plan to draw from each store's labels, or episode files made for them.
        classifiers: their names, `1nn`, `attention:10`, `python:mine.py:scores`, ...; a mapping gives each
            n_shot its own.
        transforms: chains, `none`, `zscore:train,l2`, ...; each is a run of its own.
        split: which split of each store.
        n_threads: worker threads, None for one per core; no result depends on it.
        progress: called, from any thread, with the number of episodes just done, and of all for the store
            and transform at hand.

    Returns:
        Runs in the order stores, episodes, transforms, classifiers, and the episodes they used.

    Raises:
        CacheError: a store or episode file that cannot be used, or does not fit the other.
        EpisodeError: the labels cannot give such episodes.
        ScoringError: unknown classifier or transform, or embeddings that are not finite.
    """
    for text in transforms:  # wrong names are refused before a large store is read
        parse_chain(text)
    check_names(classifiers)
    sets: dict[str, EpisodeSet] = {}
    runs: list[StoredRun] = []
    for store in stores:
        features = store.features(split)
        drawn = _episodes(store, features, episodes)
        runs += score(
            store,
            features,
            drawn,
            classifiers=classifiers,
            transforms=transforms,
            n_threads=n_threads,
            progress=progress,
        )
        for episode_set in (_episode_set(features, one) for one in drawn):
            sets.setdefault(episode_set.key, episode_set)
    return ResultFile(episode_sets=sets, runs=tuple(runs))


def score(
    store: FeatureStore,
    features: Features,
    episode_sets: Sequence[Episodes],
    *,
    classifiers: Names,
    transforms: Sequence[str] = ("none",),
    n_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[StoredRun]:
    """Score one split of one store.

    Args:
        store: where `features` come from; names the encoder in the results, and may hold splits to fit on.
        features: N embeddings with their labels.
        episode_sets: index arrays into its rows.
        classifiers, transforms, n_threads, progress: as for `score_stores`.

    Returns:
        One run per episode set, transform and classifier, in that order, with predictions (E, W, Q).

    Raises:
        CacheError: a split to fit on that is not there, or of another encoder.
        EpisodeError: rows that these features do not have, or of other classes.
        ScoringError: unknown classifier or transform, or embeddings that are not finite.
    """
    chains = [parse_chain(text) for text in transforms]
    built = build_classifiers(classifiers, episode_sets)
    for episodes in episode_sets:
        _check_episodes(episodes, features)
    runs: list[list[StoredRun]] = [[] for _ in episode_sets]
    for steps in chains:
        made = transform(store, features, steps)
        _warn_of_zeros(made.embeddings, features, built, store=store.path)
        answers = predict(
            made.embeddings, episode_sets, built, n_threads=n_threads or usable_cores(), progress=progress
        )
        for mine, episodes, row, predictions in zip(runs, episode_sets, built, answers, strict=True):
            for classifier, prediction in zip(row, predictions, strict=True):
                run = _run(store, features, episodes, made.name, classifier.name, prediction=prediction)
                mine.append(run)
    return [run for mine in runs for run in mine]


def _warn_of_zeros(
    embeddings: F32, features: Features, classifiers: Sequence[Sequence[Classifier]], *, store: Path
) -> None:
    """Cosines of a zero vector are 0 by convention (scikit-learn's too): say so."""
    by_cosine = {c.name for row in classifiers for c in row if c.shared & {"cosines", "prototype_products"}}
    zero = zero_rows(embeddings) if by_cosine else np.empty(0, dtype=np.int64)
    if zero.size:
        text = (
            f"{store}: {zero.size} of {len(embeddings)} embeddings are zero ({images(features, zero)}); "
            f"their cosines count as 0 in {', '.join(sorted(by_cosine))}"
        )
        warnings.warn(text, stacklevel=3)


def encoder_label(encoder: EncoderInfo) -> str:
    """One text that names an encoder in results, `torchvision:resnet18 random:0`."""
    return encoder.name if encoder.weights in ("none", "unknown") else f"{encoder.name} {encoder.weights}"


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
    store: FeatureStore,
    features: Features,
    episodes: Episodes,
    transform_name: str,
    classifier: str,
    *,
    prediction: Prediction,
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
        transform=transform_name,
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
