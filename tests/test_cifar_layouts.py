"""CIFAR-FS and FC100 out of CIFAR-100 as published, of folders and of pickles."""

import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from layouts import class_folders, digests, dump, label_pickle, listing_sha256, noise, read, real_images

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.benchmarks import BENCHMARKS, CIFAR100_CLASSES
from fsnl.pipeline.episodes import sample_episodes

FS, FC = BENCHMARKS["cifar-fs"].classes, BENCHMARKS["fc100"].classes
LAYOUTS = {
    "cifar-fs": ("cifar-fs-folders", "cifar-fs-pickle", "cifar100-torchvision"),
    "fc100": ("fc100-pickle", "cifar100-torchvision"),
}
PAIRS = [(name, layout) for name, layouts in LAYOUTS.items() for layout in layouts]
Layout = Callable[[str], Path]


@pytest.mark.parametrize(("name", "layout"), PAIRS)
def test_the_root_and_its_parent_give_the_same_images(
    name: str, layout: str, small_layout: Layout, tmp_path: Path
) -> None:
    root = small_layout(layout)
    images = read(name, root)
    assert images.listing.class_names == BENCHMARKS[name].classes["test"]
    assert np.bincount(images.listing.labels).tolist() == [6] * 20
    assert (images.info.name, images.info.native_size) == (name, 32)
    assert "6 images a class, published are 600" in images.found
    (tmp_path / "a").symlink_to(root)
    assert listing_sha256(read(name, tmp_path)) == listing_sha256(images)
    first = images.image(7)
    assert first.shape == (32, 32, 3)
    assert first.dtype == np.uint8
    assert first.flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "layout", "places"),
    [
        (
            "cifar-fs",
            "cifar-fs-folders",
            ["cifar100", "cifar100/data", "cifar100/splits/bertinetto/test.txt"],
        ),
        ("cifar-fs", "cifar-fs-pickle", ["CIFAR_FS_test.pickle"]),
        ("fc100", "fc100-pickle", ["FC100_test.pickle"]),
        (
            "fc100",
            "cifar100-torchvision",
            ["cifar-100-python", "cifar-100-python/train", "cifar-100-python/test"],
        ),
    ],
)
def test_the_very_file_or_folder_will_do(
    name: str, layout: str, places: list[str], small_layout: Layout
) -> None:
    root = small_layout(layout)
    whole = listing_sha256(read(name, root))
    assert {listing_sha256(read(name, root / place)) for place in places} == {whole}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_images_class_by_class(name: str, small_layout: Layout) -> None:
    reference, *others = [digests(read(name, small_layout(layout))) for layout in LAYOUTS[name]]
    assert all(other == reference for other in others)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_every_split_of_the_published_cifar100_has_its_classes(split: str, small_layout: Layout) -> None:
    root = small_layout("cifar100-torchvision")
    for name in LAYOUTS:
        assert read(name, root, split).listing.class_names == BENCHMARKS[name].classes[split]


def test_the_archive_is_read_like_its_folder(small_layout: Layout, tmp_path: Path) -> None:
    root = small_layout("cifar100-torchvision")
    archive = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(root / "cifar-100-python", "cifar-100-python")
    for place in (archive, tmp_path):
        images = read("fc100", place)
        assert listing_sha256(images) == listing_sha256(read("fc100", root))
        assert digests(images) == digests(read("fc100", root))


def published(folder: Path, *, n_each: int = 2, repeated: bool = False, protocol: int = 2) -> Path:
    """CIFAR-100 as published, of invented images: `n_each` of every class in train and in test."""
    labels = np.tile(np.arange(100), n_each)
    for seed, part in enumerate(("train", "test")):
        own = "train" if repeated else part
        held = {
            b"data": np.random.default_rng(seed).integers(0, 256, (len(labels), 3072), dtype=np.uint8),
            b"fine_labels": labels.tolist(),
            b"filenames": [f"{own}_{i}.png".encode() for i in range(len(labels))],
        }
        dump(held, folder / "cifar-100-python" / part, protocol=protocol)
    return folder


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_train_and_test_of_cifar100_are_merged(protocol: int, tmp_path: Path) -> None:
    root = published(tmp_path, protocol=protocol)
    images = read("cifar-fs", root)
    assert images.listing.image_ids[:4] == (
        "baby/test_102.png", "baby/test_2.png", "baby/train_102.png", "baby/train_2.png",
    )  # fmt: skip
    stored = pickle.loads((root / "cifar-100-python" / "test").read_bytes())[b"data"][102]
    assert (images.image(0) == stored.reshape(3, 32, 32).transpose(1, 2, 0)).all()


def test_file_names_that_repeat_give_way_to_places(tmp_path: Path) -> None:
    images = read("fc100", published(tmp_path, repeated=True))
    assert images.listing.image_ids[:4] == ("test-00002", "test-00102", "train-00002", "train-00102")


def test_only_the_chosen_classes_stay_in_memory(tmp_path: Path) -> None:
    images = read("cifar-fs", published(tmp_path), classes=("baby", "worm"))
    assert images.listing.class_names == ("baby", "worm")
    base = images.image(0).base
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert isinstance(base, np.ndarray)
    assert base.nbytes == 8 * 3072


def test_names_and_numbers_of_the_split_agree_in_every_numbering(tmp_path: Path) -> None:
    in_cifar100 = [CIFAR100_CLASSES.index(name) for name in FC["test"]]
    for numbers in (list(range(80, 100)), list(range(20)), in_cifar100):
        images = read("fc100", label_pickle(tmp_path / "a.pickle", numbers, side=32))
        assert images.listing.class_names == FC["test"]


def test_whole_classes_are_told_by_their_images_whatever_their_numbers(tmp_path: Path) -> None:
    path = real_images("fc100-pickle", tmp_path, n_classes=3, per_class=600) / "FC100_test.pickle"
    held = pickle.loads(path.read_bytes())
    plain = read("fc100", path)
    assert plain.listing.class_names == FC["test"][:3]
    # The same images, numbered backwards, in another order.
    order = np.random.default_rng(0).permutation(1800)
    numbers = [99 - held["labels"][row] for row in order]
    dump({"data": held["data"][order], "labels": numbers}, path)
    again = read("fc100", path)
    assert again.listing.class_names == FC["test"][:3]
    assert digests(again) == digests(plain)
    with pytest.raises(DatasetError, match="'beaver' of CIFAR-FS val among the classes of test"):
        read("cifar-fs", path.rename(tmp_path / "any.pickle"))
    # One pixel changed: no longer the published images, and the numbers alone tell nothing.
    held["data"][5, 0, 0, 0] ^= 1
    dump(held, path)
    assert read("fc100", path).listing.class_names == tuple(f"label {number:03d}" for number in (6, 7, 8))


def test_numbers_of_some_classes_are_not_taken_for_names(small_layout: Layout) -> None:
    # Twenty of 64 train classes, numbered 0 to 19: nothing in the file says which.
    images = read("cifar-fs", small_layout("cifar-fs-pickle"), "train")
    assert images.listing.class_names == tuple(f"label {number:03d}" for number in range(20))
    assert "20 of 64 classes, which ones the file does not tell" in images.found


def test_cut_folders_say_what_is_missing(small_layout: Layout) -> None:
    images = read("cifar-fs", small_layout("cifar-fs-folders"), "train")
    assert images.listing.class_names == FS["train"][:20]
    assert "20 of 64 classes: " in images.found


def test_letters_of_folders_may_be_of_any_case(tmp_path: Path) -> None:
    class_folders(tmp_path / "Test", tuple(name.title() for name in FS["test"]), side=2)
    images = read("cifar-fs", tmp_path)
    assert images.listing.class_names == FS["test"]
    assert images.listing.image_ids[0] == "baby/0.png"
    assert images.image(0).shape == (2, 2, 3)


def test_a_class_called_train_is_no_split(tmp_path: Path) -> None:
    class_folders(tmp_path / "data", CIFAR100_CLASSES, side=2)
    for place in (tmp_path, tmp_path / "data"):
        assert read("cifar-fs", place, "train").listing.class_names == FS["train"]


def test_folders_by_split_are_read_too(tmp_path: Path) -> None:
    class_folders(tmp_path / "val", FC["val"], side=2)
    assert read("fc100", tmp_path, "val").listing.class_names == FC["val"]


def test_layouts_with_the_same_listing_give_the_same_episodes(tmp_path: Path) -> None:
    paths = [label_pickle(tmp_path / name, list(range(20)), side=32) for name in ("a.pickle", "b.pkl")]
    one, other = (read("fc100", path) for path in paths)
    assert listing_sha256(one) == listing_sha256(other)
    labels = one.listing.labels
    first = sample_episodes(labels, n_way=5, n_shot=1, n_query=2, n_episodes=4, seed=3)
    second = sample_episodes(other.listing.labels, n_way=5, n_shot=1, n_query=2, n_episodes=4, seed=3)
    assert (first.support == second.support).all()


@pytest.mark.parametrize("lost", ["train", "test"])
def test_one_part_of_cifar100_is_not_enough(lost: str, tmp_path: Path) -> None:
    (published(tmp_path) / "cifar-100-python" / lost).unlink()
    with pytest.raises(DatasetError, match=f"no '{lost}' in it; the few-shot splits take images of both"):
        read("cifar-fs", tmp_path)


def test_cifar10_is_told_from_cifar100(tmp_path: Path) -> None:
    dump({"data": noise(1, 32), "labels": [1]}, tmp_path / "cifar-10-batches-py" / "data_batch_1")
    dump({}, tmp_path / "cifar-10-batches-py" / "test")
    with pytest.raises(DatasetError, match="this is CIFAR-10; needed is CIFAR-100"):
        read("cifar-fs", tmp_path)


def test_a_cut_archive_is_no_archive(small_layout: Layout, tmp_path: Path) -> None:
    archive = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(published(tmp_path / "a") / "cifar-100-python", "cifar-100-python")
    shutil.rmtree(tmp_path / "a")
    archive.write_bytes(archive.read_bytes()[:-5000])
    with pytest.raises(DatasetError, match=r"tar\.gz: .*; download it again"):
        read("cifar-fs", tmp_path)
