"""What a feature store holds, and what is odd about it."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsnl.cache.errors import FsnlError
from fsnl.cache.fingerprint import image_digest
from fsnl.cache.reader import FeatureStore, open_store
from fsnl.cache.schema import Features
from fsnl.cache.verify import verify_store
from fsnl.pipeline.cores import usable_cores
from fsnl.pipeline.datasets.registry import open_image_set
from fsnl.pipeline.duplicates import ImagePlace, NearPair, exact_duplicates, near_duplicates, shared_images
from fsnl.pipeline.embedding_health import Health, embedding_health

# Near duplicates that are told one by one; all are counted.
N_PAIRS = 1000
IMAGES_AT_A_TIME = 256


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split.

    Attributes:
        split: its name.
        n_images, n_classes, embedding_dim: its size.
        images_per_class: fewest, median, most.
        labels_sha256, fingerprint: its digests.
        health: of its embeddings.
        not_finite, all_zero: the images of those rows.
    """

    split: str
    n_images: int
    n_classes: int
    embedding_dim: int
    images_per_class: tuple[int, float, int]
    labels_sha256: str
    fingerprint: str
    health: Health
    not_finite: tuple[str, ...]
    all_zero: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Pairs of images with a cosine of at least `threshold`.

    Attributes:
        threshold: of the cosine.
        n_pairs: how many there are.
        n_across_classes: of them, pairs of two classes of one split.
        n_across_splits: of them, pairs of two splits.
        pairs: the closest, `N_PAIRS` at most, closest first.
    """

    threshold: float
    n_pairs: int
    n_across_classes: int
    n_across_splits: int
    pairs: tuple[NearPair, ...]


@dataclass(frozen=True, slots=True)
class ImageComparison:
    """A store's images against those of a folder now.

    Attributes:
        root: the folder.
        n_same: images whose pixels are those that were encoded.
        changed: images whose pixels are others, as `split: id`.
        missing: images of the store that are not there.
        added: images that are there and not in the store.
    """

    root: Path
    n_same: int
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that was asked for about one store.

    Attributes:
        store: what it says of itself.
        n_bytes: size of the file.
        verified: whether every byte was held against the checksums, and fits.
        splits: one report each.
        identical: groups of pixel-identical images.
        shared: how many images two splits share.
        near: near duplicates, None where not asked for.
        images: comparison with the images, None where not asked for.
    """

    store: FeatureStore
    n_bytes: int
    verified: bool
    splits: tuple[SplitReport, ...]
    identical: tuple[tuple[ImagePlace, ...], ...]
    shared: dict[tuple[str, str], int]
    near: NearDuplicates | None
    images: ImageComparison | None


def inspect_store(
    path: Path,
    *,
    verify: bool = False,
    images: Path | None = None,
    near_threshold: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Inspection:
    """Look at a feature store.

    Args:
        path: the store.
        verify: hold every byte against the checksums.
        images: a root to read the images from again.
        near_threshold: cosine from which on two images are near duplicates; None to leave the search out.
        progress: told of images read again, and images in all.

    Raises:
        FormatError: the file cannot be read, or, with `verify`, is not as it was written.
        DatasetError: the images cannot be listed.
    """
    if verify:
        verify_store(path)
    store = open_store(path)
    splits = [store.features(split) for split in store.splits]
    identical = exact_duplicates(splits)
    return Inspection(
        store=store,
        n_bytes=path.stat().st_size,
        verified=verify,
        splits=tuple(_split_report(store, features) for features in splits),
        identical=tuple(map(tuple, identical)),
        shared=dict(shared_images(identical)),
        near=None if near_threshold is None else _near(splits, threshold=near_threshold),
        images=None if images is None else _compare_images(store, splits, images, progress=progress),
    )


def _split_report(store: FeatureStore, features: Features) -> SplitReport:
    counts = np.bincount(features.labels, minlength=len(features.class_names))
    health = embedding_health(features.embeddings)
    n_images, dim = features.embeddings.shape
    return SplitReport(
        split=features.split,
        n_images=n_images,
        n_classes=len(features.class_names),
        embedding_dim=dim,
        images_per_class=(int(counts.min()), float(np.median(counts)), int(counts.max())),
        labels_sha256=features.labels_sha256,
        fingerprint=store.fingerprints[features.split],
        health=health,
        not_finite=tuple(features.image_ids[row] for row in health.not_finite),
        all_zero=tuple(features.image_ids[row] for row in health.all_zero),
    )


def _near(splits: Sequence[Features], *, threshold: float) -> NearDuplicates:
    n_pairs = n_classes = n_splits = 0
    closest: list[NearPair] = []
    for pair in near_duplicates(splits, threshold=threshold):
        n_pairs += 1
        n_splits += pair.one.split != pair.other.split
        n_classes += pair.one.split == pair.other.split and pair.one.class_name != pair.other.class_name
        closest.append(pair)
        if len(closest) >= 2 * N_PAIRS:
            closest = _closest(closest)
    return NearDuplicates(threshold, n_pairs, n_classes, n_splits, tuple(_closest(closest)))


def _closest(pairs: list[NearPair]) -> list[NearPair]:
    return sorted(pairs, key=lambda pair: -pair.cosine)[:N_PAIRS]


def _compare_images(
    store: FeatureStore, splits: Sequence[Features], root: Path, *, progress: Callable[[int, int], None]
) -> ImageComparison:
    """Decode every image again, and compare its digest."""
    same = done = 0
    changed, missing, added = [], [], []
    total = sum(len(features.labels) for features in splits)
    for features in splits:
        if not features.image_digests.any():
            msg = f"{store.path}: split {features.split!r} was imported, without images to compare with"
            raise FsnlError(msg)
        now = open_image_set(
            store.header.dataset.name, root=root, split=features.split, class_names=features.class_names
        )
        rows = {image_id: row for row, image_id in enumerate(now.listing.image_ids)}
        known = set(features.image_ids)
        added += [f"{features.split}: {name}" for name in rows if name not in known]
        pairs = [(row, rows.get(name)) for row, name in enumerate(features.image_ids)]
        missing += [f"{features.split}: {features.image_ids[row]}" for row, there in pairs if there is None]
        there = [(row, place) for row, place in pairs if place is not None]
        with ThreadPoolExecutor(usable_cores()) as pool:
            for first in range(0, len(there), IMAGES_AT_A_TIME):
                part = there[first : first + IMAGES_AT_A_TIME]
                digests = pool.map(lambda pair: image_digest(now.image(pair[1])), part)  # noqa: B023
                for (row, _), digest in zip(part, digests, strict=True):
                    if digest == int(features.image_digests[row]):
                        same += 1
                    else:
                        changed.append(f"{features.split}: {features.image_ids[row]}")
                done += len(part)
                progress(done, total)
    return ImageComparison(root, same, tuple(changed), tuple(missing), tuple(added))
