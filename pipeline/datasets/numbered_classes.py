"""Which classes the integer labels of a pickle stand for.

Files of numbers alone come in several numberings, and which one a distributor used is not written in them:

* by place in the published lists of all three splits, one after the other: miniImageNet's test is 80..99;
* by place in the list of the split: 0..19;
* of CIFAR, by CIFAR-100's own numbers, where `apple` is 0 and `worm` 99.

All of them follow the order of the alphabet, so that a file with every class of its split can be read:
the labels in ascending order are the classes in order. (Whole classes of CIFAR are told by their images, see
`cifar_marks`, and no numbering is assumed.) With classes missing, only the numbers are known for sure, and
the classes are called by them, `label 083`, unless the numbers tell more.
"""

from collections.abc import Sequence

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.benchmarks import CIFAR100_CLASSES, MINIIMAGENET, SPLITS, Asked, Benchmark
from fsnl.pipeline.datasets.names import counted


def names_of_numbers(numbers: Sequence[int], asked: Asked, *, where: str) -> tuple[tuple[str, ...], str]:
    """A class name for each number, and a remark for the user, or no text.

    Args:
        numbers: the distinct labels of a file, ascending.
        asked: data set and split.
        where: the file, for messages.

    Raises:
        DatasetError: these are the labels of another split, or more than the split has.
    """
    published = asked.published
    _refuse_other_split(numbers, asked, where=where)
    if len(numbers) == len(published):
        known = list(numbers) in _numberings(asked.benchmark, asked.split)
        return published, "" if known else "class names by the order of the labels, as in the published files"
    if len(numbers) > len(published):
        classes = f"{len(numbers)} classes, {asked.benchmark.title} {asked.split} has {len(published)}"
        msg = f"{where}: {classes}; it is of another split or data set"
        raise DatasetError(msg)
    first = _first_number(asked.benchmark, asked.split)
    own_range = range(first, first + len(published))
    if asked.benchmark is MINIIMAGENET and first > 0 and set(numbers) <= set(own_range):
        return tuple(published[number - first] for number in numbers), ""
    remark = (
        f"{len(numbers)} of {counted(len(published), 'class', plural='classes')}, which ones the file does "
        "not tell: they are called by their numbers"
    )
    return tuple(f"label {number:03d}" for number in numbers), remark


def _first_number(benchmark: Benchmark, split: str) -> int:
    return sum(len(benchmark.classes[before]) for before in SPLITS[: SPLITS.index(split)])


def _refuse_other_split(numbers: Sequence[int], asked: Asked, *, where: str) -> None:
    """Labels that are exactly those of another split, in one of the numberings."""
    if list(numbers) in _numberings(asked.benchmark, asked.split):
        return
    for split in SPLITS:
        if list(numbers) in _numberings(asked.benchmark, split):
            msg = f"{where}: its labels are {numbers[0]} to {numbers[-1]}: this is {split},"
            msg += f" asked for {asked.split}"
            msg += f"; ask for --split {split}, or get the {asked.split} file"
            raise DatasetError(msg)


def _numberings(benchmark: Benchmark, split: str) -> list[list[int]]:
    """The labels that only this split has."""
    names = benchmark.classes[split]
    first = _first_number(benchmark, split)
    numberings = [list(range(first, first + len(names)))]
    if set(names) <= set(CIFAR100_CLASSES):
        numberings.append([CIFAR100_CLASSES.index(name) for name in names])
    return numberings
