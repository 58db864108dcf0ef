"""miniImageNet in the layouts that people hold: found wherever it lies, the same images whichever layout."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from checkout import REAL_DATA
from layouts import (
    MINI,
    cache_pickle,
    class_folders,
    digests,
    dump,
    label_pickle,
    listing_sha256,
    noise,
    read,
)
from PIL import Image

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.benchmarks import BENCHMARKS, SPLITS
from fsnl.pipeline.encoders.batches import batch_rows, prepared_batches
from fsnl.pipeline.encoders.pixels import pixels_preprocessing
from fsnl.pipeline.episodes import sample_episodes

LAYOUTS = ("miniimagenet-folders", "miniimagenet-csv", "miniimagenet-cache", "miniimagenet-category")
VERY_FILE = {
    "miniimagenet-folders": "test",
    "miniimagenet-csv": "test.csv",
    "miniimagenet-cache": "mini-imagenet-cache-test.pkl",
    "miniimagenet-category": "miniImageNet_category_split_test.pickle",
}
Layout = Callable[[str], Path]


@pytest.mark.skipif(not REAL_DATA.exists(), reason="needs the split lists beside the checkout")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_class_lists_are_those_that_several_sources_agree_on(name: str) -> None:
    published = json.loads((REAL_DATA / "splits" / f"{name}.json").read_text())
    assert {split: tuple(sorted(published[split])) for split in SPLITS} == BENCHMARKS[name].classes


@pytest.mark.parametrize(
    ("name", "sizes"), [("miniimagenet", (64, 16, 20)), ("cifar-fs", (64, 16, 20)), ("fc100", (60, 20, 20))]
)
def test_the_splits_are_of_the_published_sizes_and_share_no_class(name: str, sizes: tuple[int, ...]) -> None:
    classes = BENCHMARKS[name].classes
    assert tuple(len(classes[split]) for split in SPLITS) == sizes
    assert len({name for split in SPLITS for name in classes[split]}) == 100


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_root_its_parent_and_the_very_file_give_the_same_images(
    layout: str, small_layout: Layout, tmp_path: Path
) -> None:
    root = small_layout(layout)
    images = read("miniimagenet", root)
    assert images.listing.class_names == MINI["test"]
    assert np.bincount(images.listing.labels).tolist() == [6] * 20
    assert (images.info.name, images.info.native_size) == ("miniimagenet", 84)
    assert "6 images a class, published are 600" in images.found
    assert str(root) in images.found
    (tmp_path / "a").symlink_to(root)
    for other in (tmp_path, root / VERY_FILE[layout]):
        assert listing_sha256(read("miniimagenet", other)) == listing_sha256(images)
    first = images.image(7)
    assert first.shape == (84, 84, 3)
    assert first.dtype == np.uint8
    assert first.flags.c_contiguous
    assert images.size(7) == (84, 84)


def test_every_layout_gives_the_same_images_class_by_class(small_layout: Layout) -> None:
    reference = digests(read("miniimagenet", small_layout(LAYOUTS[0])))
    assert len({value for values in reference.values() for value in values}) > 100
    for layout in LAYOUTS[1:]:
        assert digests(read("miniimagenet", small_layout(layout))) == reference


def test_layouts_with_the_same_names_give_the_same_episodes(small_layout: Layout) -> None:
    by_names = [read("miniimagenet", small_layout(layout)) for layout in LAYOUTS[:2]]
    by_places = [read("miniimagenet", small_layout(layout)) for layout in LAYOUTS[2:]]
    for one, other in (by_names, by_places):
        assert listing_sha256(one) == listing_sha256(other)
        episodes = [
            sample_episodes(images.listing.labels, n_way=5, n_shot=1, n_query=3, n_episodes=9, seed=0)
            for images in (one, other)
        ]
        assert (episodes[0].query == episodes[1].query).all()


def test_ids_are_class_and_file_name_or_the_place_in_a_pickle(small_layout: Layout) -> None:
    ids = [read("miniimagenet", small_layout(layout)).listing.image_ids[1] for layout in LAYOUTS]
    assert ids[0] == ids[1] == "n01930112/n0193011200000004.jpg"
    assert ids[2] == ids[3] == "00001"


def test_the_folder_of_images_finds_the_list_beside_it(small_layout: Layout) -> None:
    root = small_layout("miniimagenet-csv")
    assert listing_sha256(read("miniimagenet", root / "images")) == listing_sha256(read("miniimagenet", root))


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_any_protocol_and_with_bytes_for_keys_are_read(protocol: int, tmp_path: Path) -> None:
    names = MINI["test"]
    path = cache_pickle(tmp_path / "mini-imagenet-cache-test.pkl", names, side=8, protocol=protocol)
    plain = read("miniimagenet", tmp_path)
    members = {name.encode(): list(range(3 * i, 3 * i + 3)) for i, name in enumerate(names)}
    dump({b"image_data": noise(60, 8), b"class_dict": members}, path, protocol=protocol)
    assert digests(read("miniimagenet", tmp_path)) == digests(plain)
    assert plain.listing.class_names == names
    assert "is 8 x 8, published are 84 x 84" in plain.found


@pytest.mark.parametrize(
    ("split", "file"),
    [
        ("train", "miniImageNet_category_split_train_phase_train.pickle"),
        ("train", "miniImageNet_category_split_train.pickle"),
        ("train", "mini-imagenet-cache-train.pkl"),
        ("val", "miniImageNet_category_split_val.pickle"),
        ("test", "mini_imagenet_category_split_test.pkl"),
    ],
)
def test_the_files_of_every_split_are_found_by_their_spellings(split: str, file: str, tmp_path: Path) -> None:
    first = {"train": 0, "val": 64, "test": 80}[split]
    label_pickle(tmp_path / file, list(range(first, first + len(MINI[split]))), side=4)
    label_pickle(tmp_path / "miniImageNet_category_split_train_phase_val.pickle", list(range(64)), side=4)
    images = read("miniimagenet", tmp_path, split)
    assert images.listing.class_names == MINI[split]
    assert file in images.found


def test_names_in_the_file_count_more_than_the_order_of_its_numbers(tmp_path: Path) -> None:
    numbers = {name: number for number, name in enumerate(reversed(MINI["test"]), start=80)}
    path = label_pickle(tmp_path / "a.pickle", list(range(80, 100)), side=4, catname2label=numbers)
    images = read("miniimagenet", path)
    assert images.listing.class_names == MINI["test"]
    # Label 80 is the last name, and its images come first in the file.
    assert images.listing.image_ids[-3:] == ("00000", "00001", "00002")


def test_numbers_are_places_in_the_published_list(tmp_path: Path) -> None:
    whole = read("miniimagenet", label_pickle(tmp_path / "a.pickle", list(range(20)), side=4))
    assert whole.listing.class_names == MINI["test"]
    some = read("miniimagenet", label_pickle(tmp_path / "b.pickle", [99, 82, 80], side=4))
    assert some.listing.class_names == tuple(MINI["test"][place] for place in (0, 2, 19))
    assert "3 of 20 classes: 'n01981276'" in some.found


def test_numbers_that_tell_no_class_stay_numbers(tmp_path: Path) -> None:
    images = read("miniimagenet", label_pickle(tmp_path / "a.pickle", [0, 7, 12], side=4))
    assert images.listing.class_names == ("label 000", "label 007", "label 012")
    assert "3 of 20 classes, which ones the file does not tell" in images.found


def test_a_flat_folder_of_all_hundred_classes_is_cut_to_the_split(tmp_path: Path) -> None:
    class_folders(tmp_path, tuple(name for split in SPLITS for name in MINI[split]), side=2)
    for split in SPLITS:
        assert read("miniimagenet", tmp_path, split).listing.class_names == MINI[split]


def test_classes_may_be_chosen_within_the_split(tmp_path: Path) -> None:
    class_folders(tmp_path / "test", MINI["test"], side=2)
    chosen = read("miniimagenet", tmp_path, classes=MINI["test"][3:6])
    assert chosen.listing.class_names == MINI["test"][3:6]
    assert "missing" not in chosen.found
    with pytest.raises(DatasetError, match=r"'n01532829', among the classes asked for, is a class of train"):
        read("miniimagenet", tmp_path, classes=("n01532829", MINI["test"][0]))


def test_a_root_cut_to_fewer_classes_says_which_are_missing(tmp_path: Path) -> None:
    class_folders(tmp_path / "test", MINI["test"], side=2)
    shutil.rmtree(tmp_path / "test" / "n03544143")
    images = read("miniimagenet", tmp_path)
    assert len(images.listing.class_names) == 19
    assert "19 of 20 classes: 'n03544143' is missing" in images.found


def test_another_layout_in_the_same_folder_is_named(tmp_path: Path) -> None:
    class_folders(tmp_path / "test", MINI["test"], side=2)
    path = cache_pickle(tmp_path / "mini-imagenet-cache-test.pkl", MINI["test"], side=2)
    assert read("miniimagenet", tmp_path).found.endswith(f"; not read: {path}")


@pytest.mark.parametrize("split", ["test2", "novel", ""])
def test_there_are_three_splits(split: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has the splits train, val, test; asked for"):
        read("miniimagenet", tmp_path, split)


def test_images_of_the_native_size_pass_through_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = read("miniimagenet", cache_pickle(tmp_path / "a.pkl", MINI["test"]))

    def never(*args: object, **options: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Image, "fromarray", never)
    batches = batch_rows(range(60), batch_size=32)
    prepared = prepared_batches(images, pixels_preprocessing(84), batches=batches, workers=1)
    assert (np.concatenate([pixels for pixels, _ in prepared]) == noise(60)).all()


def test_a_folder_that_may_not_be_looked_into_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_folders(tmp_path / "mini" / "test", MINI["test"], side=2)
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def denying(folder: str | Path) -> Iterator[os.DirEntry[str]]:
        if Path(folder).name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", denying)
    assert read("miniimagenet", tmp_path).listing.class_names == MINI["test"]
    with pytest.raises(DatasetError, match="closed: cannot be read: Permission denied"):
        read("miniimagenet", tmp_path / "closed")
