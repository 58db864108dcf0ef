"""Whether the classes that a copy of a benchmark holds are those that were published."""

import re
from collections.abc import Iterable

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.benchmarks import MINIIMAGENET, SPLITS, Asked, Benchmark
from fsnl.pipeline.datasets.names import counted, one_spelling, some_of

# From this many unknown ones on it is another list of classes, and not one folder too many.
_ANOTHER_LIST = 5

_WNID = re.compile(r"n\d{8}")


def is_wnid(name: str) -> bool:
    """Whether a name is a WordNet id, as ImageNet's classes have them."""
    return _WNID.fullmatch(name.lower()) is not None


def published_spelling(benchmark: Benchmark, name: str) -> str:
    """The name as it was published, whatever its letter case; an unknown one as it is."""
    folded = name.casefold()
    for split in SPLITS:
        for published in benchmark.classes[split]:
            if folded == published:
                return published
    return folded if is_wnid(name) else name


def by_published_name(asked: Asked, names: Iterable[str], *, where: str) -> dict[str, str]:
    """Published name -> name as it stands there.

    Raises:
        DatasetError: two names for one class.
    """
    found: dict[str, str] = {}
    for name in sorted(names):
        published = published_spelling(asked.benchmark, one_spelling(name))
        if published in found:
            msg = f"{where}: class {published!r} is there twice, as {found[published]!r} and {name!r}"
            msg += "; merge or rename one"
            raise DatasetError(msg)
        found[published] = name
    return found


def check_classes(names: Iterable[str], asked: Asked, *, where: str, all_splits: bool) -> tuple[str, ...]:
    """Those of the split asked for, sorted; a copy that holds something else is refused.

    Where the user lists classes, only those count, and others may lie beside them.

    Args:
        names: the classes that a copy holds, in their published spelling.
        asked: data set and split.
        where: the copy, for messages.
        all_splits: whether the classes of the other splits may lie there too.

    Raises:
        DatasetError: none of the split, classes of another split, classes of no split.
    """
    title, split = asked.benchmark.title, asked.split
    homes = {name: asked.benchmark.split_of(name) for name in sorted(names)}
    ours = tuple(name for name, home in homes.items() if home == split)
    if asked.wanted is not None:
        return asked.chosen(ours, where=where)
    unknown = [name for name, home in homes.items() if home is None]
    elsewhere = [name for name, home in homes.items() if home not in (None, split)]
    if unknown:
        msg = f"{where}: {_about_unknown(unknown, n_classes=len(homes), asked=asked)}"
        raise DatasetError(msg)
    if elsewhere and not ours:
        kept = sorted({str(homes[name]) for name in elsewhere})
        classes = counted(len(elsewhere), "class", plural="classes")
        msg = f"{where}: {classes} of {title} {' and '.join(kept)}, none of {split}"
        msg += f"; ask for --split {kept[0]}, or get the {split} files"
        raise DatasetError(msg)
    if elsewhere and not all_splits:
        home = homes[elsewhere[0]]
        foreign = some_of(name for name in elsewhere if homes[name] == home)
        msg = f"{where}: {foreign} of {title} {home} among the classes of {split}"
        msg += f"; take out what is not of {split}, or list the classes with --classes"
        raise DatasetError(msg)
    return asked.chosen(ours, where=where)


def _about_unknown(unknown: list[str], *, n_classes: int, asked: Asked) -> str:
    title = asked.benchmark.title
    some = some_of(unknown)
    others = len(unknown) >= _ANOTHER_LIST and all(is_wnid(name) for name in unknown)
    if asked.benchmark is MINIIMAGENET and others:
        return (
            f"{len(unknown)} of its {n_classes} classes are none of the 100 of Ravi and Larochelle ({some}): "
            "the split of Vinyals et al. 2016, or another part of ImageNet; get Ravi and Larochelle's, "
            "or read it with --dataset folder"
        )
    verb = "is no class" if len(unknown) == 1 else "are no classes"
    return f"{some} {verb} of {title}; take it out, or list the classes to keep with --classes"
