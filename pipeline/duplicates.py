"""Images that are there twice: pixel for pixel by their digests, nearly so by their embeddings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fsnl.cache.arrays import F32, U64
from fsnl.cache.fingerprint import equal_digests
from fsnl.cache.schema import Features
from fsnl.pipeline.classifiers.faiss_search import pairs_by_cosine
from fsnl.pipeline.classifiers.similarity import inverse_norms

BLOCK_VALUES = 1 << 22


@dataclass(frozen=True, slots=True)
class ImagePlace:
    """One image of a store.

    Attributes:
        split: where it is.
        row: likewise.
        image_id: its name.
        class_name: its class.
    """

    split: str
    row: int
    image_id: str
    class_name: str


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two images whose embeddings point in about one direction.

    Attributes:
        cosine: of their embeddings.
        one, other: the images.
        identical: whether their pixels are equal.
    """

    cosine: float
    one: ImagePlace
    other: ImagePlace
    identical: bool


def exact_duplicates(splits: Sequence[Features]) -> list[list[ImagePlace]]:
    """Groups of pixel-identical images, two or more in each, within a split or across splits.

    Digests of 0 are those of images that nobody knows (imported features), and are left out.

    Returns:
        Groups in the order of their first images, images in the order of splits and rows.
    """
    rows = _Rows(splits)
    digests: U64 = np.concatenate([features.image_digests for features in splits])
    groups = [group for group in equal_digests(digests) if digests[group[0]] != 0]
    return [[rows.place(row) for row in group.tolist()] for group in groups]


def near_duplicates(splits: Sequence[Features], *, threshold: float) -> Iterator[NearPair]:
    """Every two images, of one split or of two, whose embeddings have a cosine of at least `threshold`.

    Exact search: time grows with the square of the number of images. Rows that are not finite, or all
    zero, have no direction and no pair.

    Args:
        splits: of one store.
        threshold: -1..1.
    """
    rows = _Rows(splits)
    directions = np.concatenate([_directions(features.embeddings) for features in splits])
    for cosine, one, other in pairs_by_cosine(directions, threshold=threshold):
        a, b = rows.place(one), rows.place(other)
        yield NearPair(cosine, a, b, identical=rows.digest(one) == rows.digest(other) != 0)


def shared_images(groups: Sequence[Sequence[ImagePlace]]) -> Mapping[tuple[str, str], int]:
    """How many images of one split are in another too, for every two splits that share any."""
    shared: dict[tuple[str, str], int] = {}
    for group in groups:
        splits = sorted({place.split for place in group})
        for i, one in enumerate(splits):
            for other in splits[i + 1 :]:
                shared[one, other] = shared.get((one, other), 0) + 1
    return shared


class _Rows:
    """Rows of several splits, numbered on."""

    def __init__(self, splits: Sequence[Features]) -> None:
        self._splits = splits
        self._starts = np.cumsum([0, *(len(features.labels) for features in splits)])

    def place(self, number: int) -> ImagePlace:
        features, row = self._find(number)
        name = features.class_names[int(features.labels[row])]
        return ImagePlace(features.split, row, features.image_ids[row], name)

    def digest(self, number: int) -> int:
        features, row = self._find(number)
        return int(features.image_digests[row])

    def _find(self, number: int) -> tuple[Features, int]:
        which = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self._splits[which], number - int(self._starts[which])


def _directions(embeddings: F32) -> F32:
    """(N, D) float32 of norm 1; rows without a direction become 0."""
    directions = np.zeros(embeddings.shape, dtype=np.float32)
    step = max(1, BLOCK_VALUES // max(1, embeddings.shape[1]))
    for first in range(0, len(embeddings), step):
        block = embeddings[first : first + step]
        finite = np.isfinite(block).all(axis=1)
        some = block[finite]
        directions[first + np.flatnonzero(finite)] = some * inverse_norms(some)[:, None]
    return directions
