"""The benchmarks by their published facts: classes of each split, image size, statistics of the pixels."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fsnl.cache.errors import DatasetError
from fsnl.cache.schema import DatasetInfo, Listing
from fsnl.pipeline.datasets import class_lists as lists
from fsnl.pipeline.datasets.names import choose_classes, counted, one_spelling, some_of

Channels = tuple[float, float, float]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What was published of one data set.

    Attributes:
        name: as `--dataset` takes it.
        title: as papers write it.
        classes: split -> its class names, sorted by code point.
        native_size: side of its square images in pixels.
        per_class: images of each class.
        mean: per channel, in [0, 1].
        std: likewise.
    """

    name: str
    title: str
    classes: dict[str, tuple[str, ...]]
    native_size: int
    per_class: int
    mean: Channels
    std: Channels

    @property
    def info(self) -> DatasetInfo:
        return DatasetInfo(self.name, native_size=self.native_size)

    def require_split(self, split: str) -> None:
        """Raise `DatasetError` where there is no such split."""
        if split not in self.classes:
            msg = f"{self.title} has the splits {', '.join(SPLITS)}; asked for {split!r}"
            raise DatasetError(msg)

    def split_of(self, class_name: str) -> str | None:
        """The split that a class belongs to, None for a class of no split."""
        return next((split for split in SPLITS if class_name in self.classes[split]), None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted of a benchmark.

    Attributes:
        benchmark: which.
        split: one of `SPLITS`.
        wanted: the classes to keep, None for all of the split that are there.
        skip_unreadable: whether to leave out files that cannot be read.
    """

    benchmark: Benchmark
    split: str
    wanted: tuple[str, ...] | None
    skip_unreadable: bool = False

    @property
    def published(self) -> tuple[str, ...]:
        return self.benchmark.classes[self.split]

    def chosen(self, available: Collection[str], *, where: str) -> tuple[str, ...]:
        """The classes to keep of those that are there, sorted.

        Raises:
            DatasetError: a wanted one is missing or of another split, or fewer than two are left.
        """
        if self.wanted is not None:
            outside = sorted({one_spelling(name) for name in self.wanted}.difference(self.published))
            numbered = set(outside).issubset(available)  # classes whose names a file does not tell
            if outside and not numbered:
                title = self.benchmark.title
                home = self.benchmark.split_of(outside[0])
                fault = f"a class of {home}" if home else f"no class of {title}"
                msg = f"{title} {self.split}: {outside[0]!r}, among the classes asked for, is {fault}"
                raise DatasetError(msg)
        return choose_classes(sorted(available), wanted=self.wanted, where=where)

    def remarks(self, listing: Listing) -> list[str]:
        """In which ways a listing falls short of what was published, for the user to know."""
        remarks = []
        whole = self.published if self.wanted is None else tuple(set(self.wanted))
        missing = sorted(set(whole).difference(listing.class_names))
        if missing and set(listing.class_names) <= set(whole):
            some = f"{len(listing.class_names)} of {counted(len(whole), 'class', plural='classes')}"
            verb = "is" if len(missing) == 1 else "are"
            remarks.append(f"{some}: {some_of(missing)} {verb} missing")
        return remarks + _count_remarks(listing, per_class=self.benchmark.per_class)


def _count_remarks(listing: Listing, *, per_class: int) -> list[str]:
    counts = [0] * len(listing.class_names)
    for label in listing.labels.tolist():
        counts[label] += 1
    odd = [(name, n) for name, n in zip(listing.class_names, counts, strict=True) if n != per_class]
    if not odd:
        return []
    if len({n for _, n in odd}) == 1 and len(odd) == len(counts):
        return [f"{odd[0][1]} images a class, published are {per_class}"]
    shown = ", ".join(f"{name!r} has {n}" for name, n in odd[:3]) + (", ..." if len(odd) > 3 else "")
    return [f"{per_class} images a class were published, but {shown}"]


def _over_255(*values: float) -> Channels:
    first, second, third = values
    return first / 255, second / 255, third / 255


def _sorted(*splits: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {split: tuple(sorted(names)) for split, names in zip(SPLITS, splits, strict=True)}


def _of_superclasses(superclasses: Sequence[str]) -> list[str]:
    return [name for superclass in superclasses for name in lists.CIFAR100[superclass]]


# Mean and deviation of the train split, in 0..255: Gidaris and Komodakis 2018, "Dynamic Few-Shot Visual
# Learning without Forgetting", their released code; used by most code since.
MINIIMAGENET = Benchmark(
    name="miniimagenet",
    title="miniImageNet",
    classes=_sorted(lists.MINIIMAGENET_TRAIN, lists.MINIIMAGENET_VAL, lists.MINIIMAGENET_TEST),
    native_size=84,
    per_class=600,
    mean=_over_255(120.39586422, 115.59361427, 104.54012653),
    std=_over_255(70.68188272, 68.27635443, 72.54505529),
)

# Mean and deviation of CIFAR-100's own 50,000 training images, in 0..255, as Lee et al. 2019, "Meta-Learning
# with Differentiable Convex Optimization", took them for both data sets.
_CIFAR_MEAN = _over_255(129.37731888, 124.10583864, 112.47758569)
_CIFAR_STD = _over_255(68.20947949, 65.43124043, 70.45866994)

CIFAR_FS = Benchmark(
    name="cifar-fs",
    title="CIFAR-FS",
    classes=_sorted(lists.CIFAR_FS_TRAIN, lists.CIFAR_FS_VAL, lists.CIFAR_FS_TEST),
    native_size=32,
    per_class=600,
    mean=_CIFAR_MEAN,
    std=_CIFAR_STD,
)

FC100 = Benchmark(
    name="fc100",
    title="FC100",
    classes=_sorted(
        _of_superclasses(lists.FC100_TRAIN_SUPERCLASSES),
        _of_superclasses(lists.FC100_VAL_SUPERCLASSES),
        _of_superclasses(lists.FC100_TEST_SUPERCLASSES),
    ),
    native_size=32,
    per_class=600,
    mean=_CIFAR_MEAN,
    std=_CIFAR_STD,
)

# CIFAR-100's own numbers: its 100 class names in the order of the alphabet.
CIFAR100_CLASSES = tuple(sorted(name for names in lists.CIFAR100.values() for name in names))

BENCHMARKS = {benchmark.name: benchmark for benchmark in (MINIIMAGENET, CIFAR_FS, FC100)}
