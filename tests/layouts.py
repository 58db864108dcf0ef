"""Small copies of benchmarks in the layouts that people hold, and what was read of one."""

import importlib.util
import pickle
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from checkout import REAL_DATA
from PIL import Image

from fsnl.cache.arrays import U8
from fsnl.cache.fingerprint import image_digest, labels_sha256
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.datasets.benchmarks import BENCHMARKS
from fsnl.pipeline.datasets.registry import open_image_set

MINI = BENCHMARKS["miniimagenet"].classes
PER_CLASS = 3


@cache
def _materialise() -> ModuleType:
    """The program that writes real images out; each of its mosaics is decoded once for all layouts."""
    program = REAL_DATA / "materialise.py"
    if not program.exists():
        pytest.skip(f"needs the real images in {REAL_DATA}")
    spec = importlib.util.spec_from_file_location("materialise", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = vars(module)
    names["cifar_class"] = cache(names["cifar_class"])
    return module


def real_images(layout: str, folder: Path, *, n_classes: int = 20, per_class: int = 6) -> Path:
    """Real images in a layout, up to `n_classes` of each split; skips the test where there are none."""
    program = _materialise()
    limits = ["--classes", str(n_classes), "--per-class", str(per_class)]
    with mock.patch.object(sys, "argv", ["materialise.py", layout, str(folder), *limits]):
        program.main()
    return folder


def read(name: str, root: Path, split: str = "test", **options: Any) -> ImageSet:
    return open_image_set(name, root=root, split=split, class_names=options.pop("classes", None), **options)


def digests(images: ImageSet) -> dict[str, list[int]]:
    """Class name -> digests of its images, sorted."""
    found: dict[str, list[int]] = {name: [] for name in images.listing.class_names}
    for row, label in enumerate(images.listing.labels.tolist()):
        found[images.listing.class_names[label]].append(image_digest(images.image(row)))
    return {name: sorted(values) for name, values in found.items()}


def listing_sha256(images: ImageSet) -> str:
    return labels_sha256(images.listing.class_names, images.listing.image_ids, images.listing.labels)


def noise(n_images: int, side: int = 84) -> U8:
    return np.random.default_rng(0).integers(0, 256, (n_images, side, side, 3), dtype=np.uint8)


def class_folders(folder: Path, names: tuple[str, ...], *, suffix: str = ".png", side: int = 8) -> Path:
    """FOLDER/<class>/0.png and so on, three images each."""
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i, image in enumerate(noise(PER_CLASS, side)):
            Image.fromarray(image).save(folder / name / f"{i}{suffix}", format="PNG")
    return folder


def cache_pickle(
    path: Path, names: tuple[str, ...], *, side: int = 84, protocol: int = 2, **changes: Any
) -> Path:
    """mini-imagenet-cache: `image_data`, and `class_dict` with the rows of each class."""
    members = {name: list(range(PER_CLASS * i, PER_CLASS * (i + 1))) for i, name in enumerate(names)}
    held = {"image_data": noise(PER_CLASS * len(names), side), "class_dict": members, **changes}
    return dump(held, path, protocol=protocol)


def label_pickle(
    path: Path, numbers: list[int], *, side: int = 84, protocol: int = 2, **changes: Any
) -> Path:
    """`data` and `labels`, three images for each number."""
    labels = [number for number in numbers for _ in range(PER_CLASS)]
    return dump({"data": noise(len(labels), side), "labels": labels, **changes}, path, protocol=protocol)


def dump(held: object, path: Path, *, protocol: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(held, protocol=protocol))
    return path
