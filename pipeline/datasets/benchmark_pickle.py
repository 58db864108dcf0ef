"""One split of a benchmark in a pickle: `mini-imagenet-cache-test.pkl`, `CIFAR_FS_test.pickle`, ..."""

import re
from pathlib import Path

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.array_pickle import LabelledArray, read_labelled_array
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.benchmarks import BENCHMARKS, MINIIMAGENET, SPLITS, Asked
from fsnl.pipeline.datasets.cifar_marks import names_by_images
from fsnl.pipeline.datasets.image_set import benchmark_set
from fsnl.pipeline.datasets.names import printable
from fsnl.pipeline.datasets.numbered_classes import names_of_numbers
from fsnl.pipeline.datasets.pixel_arrays import list_array
from fsnl.pipeline.datasets.published_names import by_published_name, check_classes
from fsnl.pipeline.datasets.walk import is_file, visible

# What a data set is called in file names, letters and digits only.
_STEMS = {"miniimagenet": "miniimagenet", "cifarfs": "cifar-fs", "fc100": "fc100"}


def find_pickle(place: Path, asked: Asked) -> Path | None:
    """The split's file in a folder, by its name; a file that is no CSV, text or archive is one itself."""
    if place.is_file():
        return place if place.suffix.lower() in (".pkl", ".pickle") else None
    if not place.is_dir():
        return None
    files = sorted(entry.name for entry in visible(place) if is_file(entry))
    fitting = [name for name in files if _splits_of_name(name, asked.benchmark.name) == {asked.split}]
    return place / fitting[0] if fitting else None


def read_benchmark_pickle(path: Path, asked: Asked) -> ImageSet:
    """List one split that a pickle holds.

    Args:
        path: the file.
        asked: data set, split, classes.

    Returns:
        Its images; an image id is the place in the file, `00041`.

    Raises:
        DatasetError: no such pickle, a damaged one, another split or data set, fewer than two classes.
    """
    _check_name(path, asked)
    array = read_labelled_array(path)
    names, kept, remark = _classes(array, asked, where=printable(path))
    listing, images = list_array(array.pixels, array.labels, names, kept=kept, split=asked.split)
    return benchmark_set(
        asked,
        listing,
        image=images.image,
        size=images.size,
        where=printable(path),
        remarks=[remark] if remark else [],
    )


def _splits_of_name(name: str, benchmark: str) -> set[str]:
    """Splits in the name of a benchmark's pickle, no split for any other file.

    >>> _splits_of_name("miniImageNet_category_split_train_phase_train.pickle", "miniimagenet")
    {'train'}
    """
    stem, _, suffix = name.lower().rpartition(".")
    if suffix not in ("pkl", "pickle") or _benchmark_of_name(stem) != benchmark:
        return set()
    return set(re.split(r"[^a-z0-9]+", stem)).intersection(SPLITS)


def _benchmark_of_name(stem: str) -> str | None:
    letters = re.sub(r"[^a-z0-9]+", "", stem.lower())
    return next((name for start, name in _STEMS.items() if letters.startswith(start)), None)


def _check_name(path: Path, asked: Asked) -> None:
    """Refuse a file that says by its name that it is something else."""
    benchmark = _benchmark_of_name(path.stem)
    if benchmark not in (None, asked.benchmark.name):
        msg = f"{printable(path)}: {BENCHMARKS[str(benchmark)].title} by its name, asked for"
        msg += f" {asked.benchmark.title}; use --dataset {benchmark}, or give another file"
        raise DatasetError(msg)
    words = set(re.split(r"[^a-z0-9]+", path.stem.lower()))
    splits = words.intersection(SPLITS)
    if "phase" in words and len(splits) > 1:
        msg = f"{printable(path)}: further images of the train classes, not the split {asked.split}"
        msg += "; needed is the file that names one split only"
        raise DatasetError(msg)
    if len(splits) == 1 and asked.split not in splits:
        split = splits.pop()
        msg = f"{printable(path)}: this is the {split} file, asked for {asked.split}"
        msg += f"; ask for --split {split}, or give the {asked.split} file"
        raise DatasetError(msg)


def _classes(
    array: LabelledArray, asked: Asked, *, where: str
) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The name of each class of the array, those to keep, and a remark."""
    numbers = [name for name in array.names if isinstance(name, int)]
    if numbers:
        of_cifar = asked.benchmark is not MINIIMAGENET
        by_images = names_by_images(array.pixels, array.labels) if of_cifar else None
        if by_images is not None:
            return by_images, check_classes(by_images, asked, where=where, all_splits=False), ""
        names, remark = names_of_numbers(numbers, asked, where=where)
        return names, asked.chosen(names, where=where), remark
    own = [str(name) for name in array.names]
    published = {name: spelled for spelled, name in by_published_name(asked, own, where=where).items()}
    names = tuple(published[name] for name in own)
    return names, check_classes(names, asked, where=where, all_splits=False), ""
