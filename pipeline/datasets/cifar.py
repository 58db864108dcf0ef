"""CIFAR-FS (Bertinetto et al. 2019) and FC100 (Oreshkin et al. 2018): CIFAR-100 in few-shot splits."""

from pathlib import Path

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.benchmark_pickle import find_pickle, read_benchmark_pickle
from fsnl.pipeline.datasets.benchmarks import CIFAR_FS, Asked
from fsnl.pipeline.datasets.cifar100 import find_cifar100, read_cifar100
from fsnl.pipeline.datasets.class_file import read_class_file
from fsnl.pipeline.datasets.class_folders import find_class_folders, read_class_folders
from fsnl.pipeline.datasets.locate import BenchmarkLayout
from fsnl.pipeline.datasets.names import printable, some_of

_SPLITS_FOLDER = Path("splits", "bertinetto")


def _find_folders(place: Path, asked: Asked) -> Path | None:
    """As `find_class_folders`, in PLACE or PLACE/cifar100, or by a list in splits/bertinetto/."""
    if place.is_file() and place.suffix.lower() == ".txt":
        root = next((folder for folder in place.parents if folder.name == "splits"), place).parent
        return find_class_folders(root, asked)
    return find_class_folders(place, asked) or find_class_folders(place / "cifar100", asked)


def _read_folders(folder: Path, asked: Asked) -> ImageSet:
    """As `read_class_folders`; the archive's own list of the split, where it lies there, must agree."""
    listed = folder.parent / _SPLITS_FOLDER / f"{asked.split}.txt"
    if asked.benchmark is CIFAR_FS and listed.is_file():
        names = read_class_file(listed)
        foreign = sorted(set(names).difference(asked.published))
        if foreign:
            msg = f"{printable(listed)}: {some_of(foreign)} not of {asked.benchmark.title} {asked.split}"
            msg += " as published; get the list again, or use --dataset folder"
            raise DatasetError(msg)
        gone = sorted(name for name in names if not (folder / name).is_dir())
        if gone and asked.wanted is None:
            msg = f"{printable(listed)}: lists {some_of(gone)}, not in {printable(folder)}"
            msg += "; get it, or take it from the list"
            raise DatasetError(msg)
    return read_class_folders(folder, asked)


CIFAR_FS_LAYOUTS = (
    BenchmarkLayout("class folders", "cifar100/data/<class>/*.png", _find_folders, _read_folders),
    BenchmarkLayout("pickle", "CIFAR_FS_{split}.pickle", find_pickle, read_benchmark_pickle),
    BenchmarkLayout("CIFAR-100", "cifar-100-python/ or its tar.gz", find_cifar100, read_cifar100),
)

FC100_LAYOUTS = (
    BenchmarkLayout("pickle", "FC100_{split}.pickle", find_pickle, read_benchmark_pickle),
    BenchmarkLayout("CIFAR-100", "cifar-100-python/ or its tar.gz", find_cifar100, read_cifar100),
    BenchmarkLayout("class folders", "{split}/<class>/*.png", _find_folders, _read_folders),
)
