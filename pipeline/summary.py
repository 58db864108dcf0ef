"""What a run is stored as: the answers of one classifier, their accuracy, its intervals, and the setting."""

from dataclasses import dataclass

import numpy as np

from fsnl.cache.fingerprint import episodes_sha256, queries_sha256
from fsnl.cache.reader import FeatureStore
from fsnl.cache.result_file import EpisodeSet, StoredRun, count_correct
from fsnl.cache.schema import EncoderInfo, Episodes, Features, RunSummary, SpentLabels
from fsnl.pipeline.classifiers.engine import Prediction
from fsnl.pipeline.statistics import class_interval, episode_interval


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs on the same episodes of one split have in common.

    Attributes:
        store: where the features come from; names the encoder.
        features: of the split.
        episodes: index arrays into its rows.
        queries_sha256, episodes_sha256: their digests, which take longer than all else in a summary.
        key: of their `EpisodeSet`.
    """

    store: FeatureStore
    features: Features
    episodes: Episodes
    queries_sha256: str
    episodes_sha256: str
    key: str


def setting_of(store: FeatureStore, features: Features, episodes: Episodes) -> Setting:
    """The same with its digests."""
    return Setting(
        store=store,
        features=features,
        episodes=episodes,
        queries_sha256=queries_sha256(episodes),
        episodes_sha256=episodes_sha256(episodes),
        key=episode_set_of(features, episodes).key,
    )


def episode_set_of(features: Features, episodes: Episodes) -> EpisodeSet:
    """Episodes together with the labels of the split that they index."""
    return EpisodeSet(
        episodes=episodes,
        labels=features.labels,
        class_names=features.class_names,
        image_ids=features.image_ids,
        labels_sha256=features.labels_sha256,
    )


def encoder_label(encoder: EncoderInfo) -> str:
    """One text that names an encoder in results, `torchvision:resnet18 random:0`."""
    return encoder.name if encoder.weights in ("none", "unknown") else f"{encoder.name} {encoder.weights}"


def run_on(setting: Setting, prediction: Prediction, *, transform: str, classifier: str) -> StoredRun:
    """A run as it is stored and shown.

    Args:
        setting: what was asked.
        prediction: what was answered.
        transform, classifier: by name, as they stand in results.
    """
    features, episodes = setting.features, setting.episodes
    correct = count_correct(prediction.ways)
    total, right = episodes.query.size, int(correct.sum(dtype=np.int64))
    per_episode = correct.sum(axis=1, dtype=np.int64) / (episodes.n_way * episodes.n_query)
    interval = episode_interval(per_episode)
    over_classes = class_interval(per_episode, episodes.classes)
    header, preprocessing = setting.store.header, setting.store.header.preprocessing
    summary = RunSummary(
        store=str(setting.store.path),
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
        queries_sha256=setting.queries_sha256,
        episodes_sha256=setting.episodes_sha256,
        classifier=classifier,
        transform=transform,
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
    return StoredRun(summary=summary, episodes=setting.key, predictions=prediction.ways, correct=correct)
