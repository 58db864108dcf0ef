"""Stage 3: feature store, episodes and classifiers to accuracies, with every prediction kept."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fsnl.cache.arrays import F32
from fsnl.cache.episode_file import check_fits, read_episode_file
from fsnl.cache.errors import EpisodeError
from fsnl.cache.reader import FeatureStore
from fsnl.cache.result_file import EpisodeSet, ResultFile, StoredRun
from fsnl.cache.schema import Episodes, Features
from fsnl.pipeline.classifier_names import Names, build_classifiers, check_names
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.engine import predict
from fsnl.pipeline.cores import usable_cores
from fsnl.pipeline.episodes import sample_episodes, sample_episodes_without_replacement
from fsnl.pipeline.finite import images, zero_rows
from fsnl.pipeline.fitting import transform
from fsnl.pipeline.summary import episode_set_of, run_on, setting_of
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
        for episode_set in (episode_set_of(features, one) for one in drawn):
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
    settings = [setting_of(store, features, episodes) for episodes in episode_sets]
    runs: list[list[StoredRun]] = [[] for _ in episode_sets]
    for steps in chains:
        made = transform(store, features, steps)
        _warn_of_zeros(made.embeddings, features, built, store=store.path)
        answers = predict(
            made.embeddings, episode_sets, built, n_threads=n_threads or usable_cores(), progress=progress
        )
        for mine, setting, row, predictions in zip(runs, settings, built, answers, strict=True):
            for classifier, prediction in zip(row, predictions, strict=True):
                mine.append(run_on(setting, prediction, transform=made.name, classifier=classifier.name))
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


def _episodes(
    store: FeatureStore, features: Features, wanted: EpisodePlan | Sequence[Path]
) -> list[Episodes]:
    if isinstance(wanted, EpisodePlan):
        if wanted.without_replacement:
            return [_drawn(features, wanted, n_shot) for n_shot in wanted.shots]
        most = _drawn(features, wanted, max(wanted.shots))  # fewer shots are the first of these
        return [
            replace(most, support=np.ascontiguousarray(most.support[:, :, :n_shot]))
            for n_shot in wanted.shots
        ]
    read = []
    for path in wanted:
        content = read_episode_file(path)
        check_fits(path, content, features, store=store.path)
        read.append(content.episodes)
    return read


def _drawn(features: Features, plan: EpisodePlan, n_shot: int) -> Episodes:
    sample = sample_episodes_without_replacement if plan.without_replacement else sample_episodes
    return sample(
        features.labels,
        n_way=plan.n_way,
        n_shot=n_shot,
        n_query=plan.n_query,
        n_episodes=plan.n_episodes,
        seed=plan.seed,
        class_names=features.class_names,
    )


def _check_episodes(episodes: Episodes, features: Features) -> None:
    n_rows = len(features.labels)
    for name, rows in (("support", episodes.support), ("query", episodes.query)):
        if rows.size == 0 or rows.min() < 0 or rows.max() >= n_rows:
            msg = f"episodes name {name} rows outside 0..{n_rows - 1} of split {features.split!r}"
            raise EpisodeError(msg)
        if not (features.labels[rows] == episodes.classes[..., None]).all():
            msg = f"episodes have {name} rows of other classes than those they name: other labels"
            raise EpisodeError(msg)
