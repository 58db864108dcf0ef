"""The embedded data set against scikit-learn's own reader."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets import digits
from fsnl.pipeline.datasets.registry import open_image_set
from fsnl.pipeline.encoders.pixels import uniform_size


class Asked(TypedDict, total=False):
    root: Path | None
    split: str
    class_names: Sequence[str] | None


def test_every_image_and_label_is_scikit_learns() -> None:
    bunch = load_digits()
    images = digits.read_digits()
    listing = images.listing
    source = [int(image_id) for image_id in listing.image_ids]
    assert sorted(source) == list(range(1797))
    assert [int(listing.class_names[label]) for label in listing.labels] == list(bunch.target[source])
    for row, place in enumerate(source):
        expected = np.floor(bunch.images[place] * 255 / 16 + 0.5)
        np.testing.assert_array_equal(images.image(row), np.repeat(expected[:, :, None], 3, axis=2))


def test_rows_are_ordered_by_class_then_image_id() -> None:
    listing = digits.read_digits().listing
    assert listing.class_names == tuple("0123456789")
    rows = list(zip(listing.labels.tolist(), listing.image_ids, strict=True))
    assert rows == sorted(set(rows))
    assert listing.split == "test"
    assert listing.labels.dtype == listing.source_sizes.dtype == np.int64
    assert len(listing.source_sizes) == 1797


def test_the_table_is_read_alike_where_scikit_learn_has_moved_it(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = digits._source()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for ours, theirs in zip(expected, digits._source(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_the_stated_mean_and_deviation_are_those_of_the_images() -> None:
    images = digits.read_digits()
    values = np.stack([images.image(row) for row in range(1797)]) / 255
    np.testing.assert_allclose(values.mean(axis=(0, 1, 2)), images.mean, atol=5e-5)
    np.testing.assert_allclose(values.std(axis=(0, 1, 2)), images.std, atol=5e-5)


def test_images_span_black_to_white_in_eight_by_eight() -> None:
    images = digits.read_digits()
    values = np.stack([images.image(row) for row in range(1797)])
    assert (values.min(), values.max()) == (0, 255)
    assert images.image(0).flags.c_contiguous
    assert uniform_size(images) == images.info.native_size == 8


def test_chosen_classes_keep_their_images_and_ids() -> None:
    every = digits.read_digits()
    some = digits.read_digits(class_names=["7", "3"])
    assert some.listing.class_names == ("3", "7")
    assert set(some.listing.labels) == {0, 1}
    of_three = np.flatnonzero(every.listing.labels == 3)
    assert some.listing.image_ids[: len(of_three)] == tuple(every.listing.image_ids[row] for row in of_three)
    np.testing.assert_array_equal(some.image(0), every.image(of_three[0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "train"}, "digits has one split, 'test'; asked for 'train'"),
        ({"class_names": ["3", "eleven"]}, "1 class asked for, not among its 10: 'eleven'"),
        ({"class_names": ["3"]}, "one class alone .'3'.; few-shot episodes need at least two"),
        ({"root": Path("pictures")}, "takes no root; for the images in pictures use --dataset folder"),
    ],
)
def test_what_digits_cannot_give_is_said(arguments: Asked, message: str) -> None:
    asked: Asked = {"root": None, "split": "test", "class_names": None, **arguments}
    with pytest.raises(DatasetError, match=message):
        open_image_set("digits", **asked)


def test_an_unknown_data_set_is_answered_with_those_there_are() -> None:
    with pytest.raises(DatasetError, match="unknown data set 'imagenet'; there are digits, folder"):
        open_image_set("imagenet", root=None, split="test", class_names=None)


def test_reading_needs_neither_scikit_learn_nor_torch() -> None:
    code = (
        "import sys; from fsnl.pipeline.datasets.registry import open_image_set;"
        "open_image_set('digits', root=None, split='test', class_names=None).image(0);"
        "print({'sklearn', 'torch', 'h5py', 'click'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
