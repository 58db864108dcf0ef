"""The class lists of CIFAR-FS and FC100, and the statistics of their pixels."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkout import REAL_DATA
from layouts import read

from fsnl.pipeline.datasets.benchmarks import BENCHMARKS, CIFAR100_CLASSES, SPLITS
from fsnl.pipeline.datasets.class_lists import CIFAR100

SUPERCLASS_OF = {name: superclass for superclass, names in CIFAR100.items() for name in names}


@pytest.mark.skipif(not REAL_DATA.exists(), reason="needs the class lists beside the checkout")
def test_the_classes_and_superclasses_are_those_of_cifar100() -> None:
    published = json.loads((REAL_DATA / "splits" / "cifar100_classes.json").read_text())
    assert published["fine_label_names"] == list(CIFAR100_CLASSES)
    assert published["coarse_label_names"] == list(CIFAR100)
    assert published["coarse_of"] == SUPERCLASS_OF


def test_fc100_shares_no_superclass_between_splits() -> None:
    held = {split: {SUPERCLASS_OF[name] for name in BENCHMARKS["fc100"].classes[split]} for split in SPLITS}
    assert held["test"] == {"aquatic_mammals", "insects", "medium_mammals", "people"}
    assert not held["test"] & (held["train"] | held["val"])
    assert not held["train"] & held["val"]
    assert sum(map(len, held.values())) == 20


def test_cifar_fs_shares_superclasses_between_splits() -> None:
    # Its classes were drawn one by one: the reason for FC100.
    classes = BENCHMARKS["cifar-fs"].classes
    held = {split: {SUPERCLASS_OF[name] for name in classes[split]} for split in SPLITS}
    assert held["test"] & held["train"]


def test_published_mean_and_deviation_are_those_of_the_images(small_layout: Callable[[str], Path]) -> None:
    root = small_layout("cifar100-torchvision")
    sets = [read("cifar-fs", root, split) for split in SPLITS]
    pixels = np.stack([images.image(row) for images in sets for row in range(len(images.listing.labels))])
    values = pixels.reshape(-1, 3) / 255
    assert np.allclose(values.mean(axis=0), sets[0].mean, atol=0.02)
    assert np.allclose(values.std(axis=0), sets[0].std, atol=0.02)
