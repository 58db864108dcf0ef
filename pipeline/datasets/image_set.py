"""The images of a benchmark, whichever layout they came from."""

from collections.abc import Callable, Sequence

from fsnl.cache.arrays import U8
from fsnl.cache.errors import DatasetError
from fsnl.cache.schema import Listing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.benchmarks import Asked


def benchmark_set(
    asked: Asked,
    listing: Listing,
    *,
    image: Callable[[int], U8],
    size: Callable[[int], tuple[int, int]],
    where: str,
    remarks: Sequence[str] = (),
) -> ImageSet:
    """What a reader found, with the benchmark's own statistics, and in words how it differs from published.

    Args:
        asked: data set and split.
        listing, image, size: as in `ImageSet`.
        where: what was read, for the line to the user.
        remarks: what else the user should know.
    """
    benchmark = asked.benchmark
    all_remarks = [
        *asked.remarks(listing),
        *_size_remarks(listing, size, side=benchmark.native_size),
        *remarks,
    ]
    n_classes, n_images = len(listing.class_names), len(listing.image_ids)
    found = f"{benchmark.title}, {n_classes} classes, {n_images} images in {where}"
    return ImageSet(
        info=benchmark.info,
        listing=listing,
        image=image,
        size=size,
        mean=benchmark.mean,
        std=benchmark.std,
        found="; ".join([found, *all_remarks]),
    )


def _size_remarks(listing: Listing, size: Callable[[int], tuple[int, int]], *, side: int) -> list[str]:
    """Whether the first image of each class has the published size; an unreadable one says nothing."""
    first_rows = {label: row for row, label in reversed(list(enumerate(listing.labels.tolist())))}
    for row in first_rows.values():
        try:
            height, width = size(row)
        except DatasetError:
            continue
        if (height, width) != (side, side):
            ours, theirs = f"{width} x {height}", f"{side} x {side}"
            return [f"{listing.image_ids[row]} is {ours}, published are {theirs}: such images are resized"]
    return []
