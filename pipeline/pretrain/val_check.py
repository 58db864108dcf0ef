"""A small few-shot check of a network in training, on classes of the val split. It spends their labels."""

import numpy as np
import torch

from fsnl.cache.arrays import F32
from fsnl.cache.errors import EpisodeError
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers.base import decide
from fsnl.pipeline.classifiers.prototype_cosine import prototype_cosine_scores
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.encoders.batches import prepared_batches
from fsnl.pipeline.episodes import sample_episodes
from fsnl.pipeline.pretrain.step import Trainer

N_EPISODES = 600
_N_WAY, _N_SHOTS, _N_QUERY = 5, (1, 5), 15

# Images of the training split whose mean embedding is the centre.
N_CENTRE = 2000

_BATCH = 256


def check_episodes(val: ImageSet) -> None:
    """Refuse a split before anything is trained.

    Raises:
        EpisodeError: fewer than five classes, or a class with fewer than 20 images.
    """
    try:
        _episodes(val, n_shot=max(_N_SHOTS), n_episodes=1)
    except EpisodeError as error:
        message = f"--check-val cannot be done on split {val.listing.split!r}: {error}"
        raise EpisodeError(message) from error


def few_shot_accuracies(trainer: Trainer, val: ImageSet, centre: F32, *, workers: int) -> tuple[float, float]:
    """Mean accuracy of 5-way 1-shot and 5-shot episodes by cosine to centred prototypes.

    Args:
        trainer: its network is used as it is, in evaluation mode.
        val: the split whose labels are spent.
        centre: (D,) mean embedding, which is subtracted.
        workers: decoding threads.

    Raises:
        EpisodeError: fewer than five classes, or a class with fewer than 20 images.
        DatasetError: an image that cannot be decoded.
    """
    rows = range(len(val.listing.labels))
    embeddings = embedded(trainer, val, rows, workers=workers) - centre
    accuracies = []
    for n_shot in _N_SHOTS:
        episodes = _episodes(val, n_shot=n_shot, n_episodes=N_EPISODES)
        n_right = 0
        for support, query in zip(episodes.support, episodes.query, strict=True):
            scores = prototype_cosine_scores(embeddings[support][None], embeddings[query.ravel()][None])
            ways = np.repeat(np.arange(_N_WAY), _N_QUERY)
            n_right += int((decide(scores)[0] == ways).sum())
        accuracies.append(n_right / (N_EPISODES * _N_WAY * _N_QUERY))
    return accuracies[0], accuracies[1]


def _episodes(val: ImageSet, *, n_shot: int, n_episodes: int) -> Episodes:
    return sample_episodes(
        val.listing.labels,
        n_way=_N_WAY,
        n_shot=n_shot,
        n_query=_N_QUERY,
        n_episodes=n_episodes,
        seed=0,
        class_names=val.listing.class_names,
    )


def embedded(trainer: Trainer, image_set: ImageSet, rows: "range | list[int]", *, workers: int) -> F32:
    """(n, D) float32 embeddings of some images by the network in training, which is left as it was."""
    parts = []
    batches = [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]
    backbone = trainer.model.backbone.eval()
    try:
        decoded = prepared_batches(image_set, trainer.preprocessing, batches=batches, workers=workers)
        for images, _ in decoded:
            pixels = trainer.pixels(images)
            with torch.inference_mode(), trainer.arithmetic():
                parts.append(backbone(pixels.sub_(trainer.mean).div_(trainer.std)).float().cpu().numpy())
    finally:
        trainer.model.train()
    return np.concatenate(parts)
