"""Folders of images as people hold them: layouts, order, what is passed over, what is refused."""

import errno
import json
import os
import pickle
import random
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from checkout import REAL_DATA
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.base import IMAGENET_MEAN, IMAGENET_STD, ImageSet
from fsnl.pipeline.datasets.class_file import read_class_file
from fsnl.pipeline.datasets.folder import read_folder
from fsnl.pipeline.datasets.registry import open_image_set
from fsnl.pipeline.encoders.pixels import uniform_size

CLASSES = ["a", "a b", "B", "é", "z", "10", "9"]
TWO_CLASSES = ("fox/1.png", "owl/1.png")

Entries: TypeAlias = AbstractContextManager[Iterator[os.DirEntry[str]]]  # what os.scandir gives
Materialise: TypeAlias = Callable[[str, int, int], Path]  # layout, classes, images of each -> root


def tree(root: Path, *files: str) -> Path:
    """Files of a few bytes that only look like images: a listing opens none."""
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 7)
    return root


def ids(root: Path, split: str = "test", class_names: Sequence[str] | None = None) -> tuple[str, ...]:
    return read_folder(root, split=split, class_names=class_names).listing.image_ids


def link(path: Path, target: Path | str, *, target_is_directory: bool = False) -> None:
    try:
        path.symlink_to(target, target_is_directory=target_is_directory)
    except OSError:
        pytest.skip("no symbolic links on this file system")


# ---- layout


def test_classes_in_the_root_are_found_and_the_split_is_only_a_name(tmp_path: Path) -> None:
    images = read_folder(tree(tmp_path, "owl/b.png", "owl/a.jpg", "fox/c.png"), split="mine")
    listing = images.listing
    assert listing.split == "mine"
    assert listing.class_names == ("fox", "owl")
    assert listing.image_ids == ("fox/c.png", "owl/a.jpg", "owl/b.png")
    assert listing.labels.tolist() == [0, 1, 1]
    assert listing.source_sizes.tolist() == [7, 7, 7]
    assert listing.labels.dtype == listing.source_sizes.dtype == np.int64
    assert images.found == f"2 classes, 3 images in {tmp_path}/<class>"
    assert (images.info.name, images.info.native_size) == ("folder", None)
    assert (images.mean, images.std) == (IMAGENET_MEAN, IMAGENET_STD)


def test_classes_in_a_split_are_found_and_other_splits_left_alone(tmp_path: Path) -> None:
    root = tree(tmp_path, *(f"{split}/{file}" for split in ("train", "val", "test") for file in TWO_CLASSES))
    tree(root, "README.md", ".git/x.png", "__MACOSX/test/x.png", "annotations/boxes.csv", "test/classes.txt")
    images = read_folder(root, split="test")
    assert images.listing.image_ids == TWO_CLASSES
    assert images.found == f"2 classes, 2 images in {tmp_path}/test/<class>"


@pytest.mark.parametrize("split", ["test", "novel", "my own split"])
def test_a_split_of_any_name_may_stand_alone_or_beside_known_ones(tmp_path: Path, split: str) -> None:
    root = tree(tmp_path, *(f"{split}/{file}" for file in TWO_CLASSES))
    assert ids(root, split) == TWO_CLASSES
    tree(root, "Train/elk/1.png")
    assert ids(root, split) == TWO_CLASSES


@pytest.mark.parametrize("split", ["test", "train"])
def test_a_class_called_train_is_a_class(tmp_path: Path, split: str) -> None:
    tree(tmp_path, "bus/1.png", "train/1.png", "train/2.png", "train/night/3.png")
    assert ids(tmp_path, split) == ("bus/1.png", "train/1.png", "train/2.png", "train/night/3.png")


def test_a_class_called_train_of_nested_folders_is_a_class_beside_others(tmp_path: Path) -> None:
    tree(tmp_path, "bus/1.png", "train/steam/1.png", "train/night/3.png")
    assert ids(tmp_path, "test") == ("bus/1.png", "train/night/3.png", "train/steam/1.png")
    images = read_folder(tmp_path, split="train")
    assert images.listing.class_names == ("bus", "train")
    assert images.found.endswith("; 'train' taken as a class, beside 'bus'")


def test_a_split_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    tree(tmp_path, "train/owl/1.png", "Val/fox/1.png", "notes/a.txt")
    with pytest.raises(DatasetError, match="no split 'test'; there are 'Val', 'train'"):
        read_folder(tmp_path, split="test")


def test_splits_without_class_folders_are_not_taken_for_classes(tmp_path: Path) -> None:
    tree(tmp_path, "train/1.png", "test/1.png")
    with pytest.raises(DatasetError, match="'test', 'train' should hold a folder for each class"):
        read_folder(tmp_path, split="test")


# ---- what counts as an image


def test_clutter_is_passed_over_and_files_that_are_no_images_are_counted(tmp_path: Path) -> None:
    tree(tmp_path, *TWO_CLASSES, "notes/a.txt", "empty/.keep", ".hidden/1.png", ".DS_Store", "stray.PNG")
    tree(
        tmp_path, "owl/Thumbs.db", "owl/desktop.ini", "owl/.ipynb_checkpoints/1-checkpoint.png", "owl/._1.png"
    )
    tree(tmp_path, "owl/a.heic", "owl/deep/b.TXT", "fox/png", "fox/labels.txt", "__pycache__/a.png")
    images = read_folder(tmp_path, split="test")
    assert images.listing.image_ids == TWO_CLASSES
    assert images.found == (
        f"2 classes, 2 images in {tmp_path}/<class>"
        "; passed over 5 files without an image's extension (.heic, .txt)"
        "; passed over 2 folders without images ('empty', 'notes')"
        "; passed over 1 image beside the class folders"
    )


def test_extensions_count_in_any_letter_case_and_folders_may_look_like_files(tmp_path: Path) -> None:
    names = [
        "a.JPG",
        "b.Jpeg",
        "c.png",
        "d.WebP",
        "e.bmp",
        "f.gif",
        "g.tif",
        "h.TIFF",
        "i.ppm",
        "j.pgm",
        "k.l.png",
    ]
    tree(tmp_path, *(f"owl.png/{name}" for name in names), "fox/1.png")
    assert ids(tmp_path)[1:] == tuple(f"owl.png/{name}" for name in names)


def test_folders_inside_a_class_belong_to_it(tmp_path: Path) -> None:
    tree(tmp_path, "owl/2019/a.jpg", "owl/2019/deep/er/b.jpg", "owl/z.jpg", "fox/1.png")
    assert ids(tmp_path) == ("fox/1.png", "owl/2019/a.jpg", "owl/2019/deep/er/b.jpg", "owl/z.jpg")


def test_names_may_be_long_and_of_any_script(tmp_path: Path) -> None:
    files = ["猫/写真 1.png", "猫/" + "n" * 251 + ".png", "Ünïcödé/ß.png", "😀/'\"&;\n.png"]
    try:
        tree(tmp_path, *files)
    except OSError:
        pytest.skip("the file system does not take these names")
    assert set(ids(tmp_path)) == set(files)


# ---- order


@settings(deadline=None, max_examples=60)
@given(
    files=st.lists(
        st.tuples(
            st.sampled_from(["a", "a b", "B", "é", "z", "10", "9"]),
            st.text("aB.é-_9 ", min_size=1, max_size=5),
        ),
        min_size=2,
        unique=True,
    ),
    seed=st.randoms(use_true_random=False),
)
def test_order_is_by_code_point_whatever_the_order_on_disk(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, str]], seed: random.Random
) -> None:
    names = [f"{folder}/x{name}y.png" for folder, name in files] + ["owl/1.png", "fox/1.png"]
    first = tree(tmp_path_factory.mktemp("one"), *names)
    seed.shuffle(names)
    second = tree(tmp_path_factory.mktemp("two"), *names)
    one, two = (read_folder(root, split="test").listing for root in (first, second))
    assert one.image_ids == two.image_ids
    assert sorted(one.image_ids) == sorted(names)
    assert list(one.class_names) == sorted(one.class_names)
    keys = [(name.split("/")[0], name) for name in one.image_ids]
    assert keys == sorted(keys)
    assert [one.class_names[label] for label in one.labels] == [folder for folder, _ in keys]
    assert one.labels.tolist() == two.labels.tolist()


# ---- choice of classes


def test_chosen_classes_keep_their_images_and_no_other_folder_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, "elk/1.png", "fox/1.png", "owl/1.png", "owl/2.png")
    scandir = os.scandir
    opened: list[str] = []

    def noting(folder: str | Path) -> Entries:
        opened.append(str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", noting)
    assert ids(tmp_path, class_names=["owl", "elk"]) == ("elk/1.png", "owl/1.png", "owl/2.png")
    assert str(tmp_path / "fox") not in opened


def test_chosen_classes_that_are_missing_or_empty_are_named(tmp_path: Path) -> None:
    tree(tmp_path, *TWO_CLASSES, "elk/notes.txt")
    with pytest.raises(DatasetError, match="not among its 3: 'fxo'; the closest to 'fxo' is 'fox'"):
        read_folder(tmp_path, split="test", class_names=["fxo", "owl"])
    with pytest.raises(DatasetError, match="no image in 'elk'; add images, or leave it out of the classes"):
        read_folder(tmp_path, split="test", class_names=["elk", "owl"])
    with pytest.raises(DatasetError, match=r"one class alone \('owl'\); few-shot episodes need at least two"):
        read_folder(tmp_path, split="test", class_names=["owl"])


# ---- Unicode


def test_names_come_in_the_composed_form_of_unicode(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "bügel")
    tree(tmp_path, f"{decomposed}/ö.png", "fox/1.png")
    Image.new("RGB", (3, 2), "red").save(tmp_path / decomposed / "ö.png")
    images = read_folder(tmp_path, split="test", class_names=[decomposed, "fox"])
    assert images.listing.class_names == ("bügel", "fox")
    assert images.listing.image_ids[0] == "bügel/ö.png"
    assert images.image(0).shape == (2, 3, 3)  # read by its name on the disk


@pytest.mark.parametrize(
    ("form", "message"), [("{}/1.png", "two folders 'ü'"), ("owl/{}.png", "two images 'owl/ü.png'")]
)
def test_names_alike_but_for_their_form_are_refused(tmp_path: Path, form: str, message: str) -> None:
    tree(tmp_path, *TWO_CLASSES, *(form.format(unicodedata.normalize(kind, "ü")) for kind in ("NFC", "NFD")))
    if sum(1 for path in tmp_path.rglob("*") if not path.name.isascii()) < 2:
        pytest.skip("the file system knows one form only")
    with pytest.raises(DatasetError, match=f"{message}, alike but for Unicode's form; rename one"):
        read_folder(tmp_path, split="test")


@pytest.mark.parametrize("name", [b"owl/\xff.png", b"owl/\xff/1.png", b"\xff/1.png"])
def test_names_that_are_not_utf8_are_refused(tmp_path: Path, name: bytes) -> None:
    tree(tmp_path, *TWO_CLASSES)
    try:
        tree(tmp_path, os.fsdecode(name))
    except OSError:
        pytest.skip("the file system takes UTF-8 only")
    with pytest.raises(DatasetError, match=r"\\udcff.*: a name that is not UTF-8; rename it") as caught:
        read_folder(tmp_path, split="test")
    str(caught.value).encode()  # can be printed


# ---- links


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    tree(tmp_path / "store", "1.png", "owl/1.png", "more/2.png")
    root = tmp_path / "root"
    tree(root, "fox/own.png")
    link(root / "fox/linked.png", tmp_path / "store/1.png")
    link(root / "fox/more", tmp_path / "store/more", target_is_directory=True)
    link(root / "owl", tmp_path / "store/owl", target_is_directory=True)
    images = read_folder(root, split="test")
    assert images.listing.image_ids == ("fox/linked.png", "fox/more/2.png", "fox/own.png", "owl/1.png")
    assert images.listing.source_sizes.tolist() == [7, 7, 7, 7]
    link(tmp_path / "by_link", root, target_is_directory=True)
    assert ids(tmp_path / "by_link") == images.listing.image_ids


def test_links_back_to_a_folder_above_are_not_followed(tmp_path: Path) -> None:
    tree(tmp_path, *(f"test/{file}" for file in TWO_CLASSES), "test/owl/deep/2.png")
    above: list[Path | str] = [".", "..", "../..", "../../..", tmp_path, tmp_path / "test"]
    for i, target in enumerate(above):
        link(tmp_path / f"test/owl/deep/loop{i}", target, target_is_directory=True)
    link(tmp_path / "test/owl/round", "round")
    images = read_folder(tmp_path, split="test")
    assert images.listing.image_ids == (*TWO_CLASSES, "owl/deep/2.png")
    assert "passed over 6 links back to a folder above" in images.found


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, *TWO_CLASSES)
    link(tmp_path / "owl/2.png", tmp_path / "gone.png")
    with pytest.raises(DatasetError, match=r"2\.png: cannot be read: No such file .*\(a link to nothing\)"):
        read_folder(tmp_path, split="test")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_with_the_name_of_an_image_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tree(tmp_path, *TWO_CLASSES) / "owl/pipe.png")
    assert ids(tmp_path) == TWO_CLASSES


# ---- what is refused


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no image: needed are <class>/<image>, or <split>/<class>/<image>"),
        (["owl/notes.txt", "fox/.hidden.png"], "no image: needed are <class>/<image>"),
        (["1.png", "2.png"], "2 images but no class; give each class a folder"),
        (["owl/1.png", "owl/deep/2.png"], r"one class alone \('owl'\); few-shot episodes need at least two"),
        (["test/owl/1.png"], r"/test: one class alone \('owl'\)"),
        (["test/notes.txt"], "/test: no image"),
    ],
)
def test_a_root_without_two_classes_of_images_is_refused(
    tmp_path: Path, files: list[str], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        read_folder(tree(tmp_path, *files), split="test")


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, "images.zip")
    with pytest.raises(DatasetError, match="nowhere: no such folder"):
        read_folder(tmp_path / "nowhere", split="test")
    with pytest.raises(DatasetError, match=r"images\.zip: a file, not a folder; an archive must be unpacked"):
        read_folder(tmp_path / "images.zip", split="test")
    with pytest.raises(DatasetError, match="'folder' needs --root, the folder that holds its images"):
        open_image_set("folder", root=None, split="test", class_names=None)


def test_an_empty_file_is_refused_before_anything_is_encoded(tmp_path: Path) -> None:
    tree(tmp_path, *TWO_CLASSES)
    (tmp_path / "owl/0.jpg").touch()
    with pytest.raises(DatasetError, match=r"owl.0\.jpg: empty file \(0 bytes\)"):
        read_folder(tmp_path, split="test")


@pytest.mark.parametrize("forbidden", ["", "test", "test/owl", "test/owl/deep"])
def test_a_folder_without_permission_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forbidden: str
) -> None:
    tree(tmp_path, *(f"test/{file}" for file in TWO_CLASSES), "test/owl/deep/2.png")
    scandir = os.scandir

    def denying(folder: str | Path) -> Entries:
        if str(folder) == str(tmp_path / forbidden):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", denying)
    with pytest.raises(DatasetError, match=f"{tmp_path / forbidden}: cannot be read: Permission denied"):
        read_folder(tmp_path, split="test")


# ---- images and sizes


def small_images(root: Path, sizes: Sequence[tuple[int, int]]) -> ImageSet:
    for i, size in enumerate(sizes):
        path = root / f"class{i % 2}" / f"{i:03}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", size, (i, 0, 0)).save(path)
    return read_folder(root, split="test")


def test_images_are_decoded_by_row(tmp_path: Path) -> None:
    images = small_images(tmp_path, [(5, 4), (3, 2), (5, 4), (7, 6)])
    assert images.listing.image_ids == (
        "class0/000.png",
        "class0/002.png",
        "class1/001.png",
        "class1/003.png",
    )
    assert [images.image(row)[0, 0].tolist() for row in range(4)] == [[i, 0, 0] for i in (0, 2, 1, 3)]
    assert [images.size(row) for row in range(4)] == [(4, 5), (4, 5), (2, 3), (6, 7)]
    assert pickle.loads(pickle.dumps(images)).image(3).shape == (6, 7, 3)  # a worker process may have it


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([(4, 4)] * 4, 4),
        ([(4, 4)] * 3 + [(5, 5)], None),
        ([(4, 5)] * 4, None),
        ([(4, 4)] * 3 + [(4, 5)], None),
        ([(96, 96)] * 4, 96),
        ([(97, 97)] * 4, None),
    ],
)
def test_one_side_is_told_where_all_images_are_equal_squares_of_at_most_96_pixels(
    tmp_path: Path, sizes: list[tuple[int, int]], side: int | None
) -> None:
    assert uniform_size(small_images(tmp_path, sizes)) == side


def test_an_unreadable_image_is_named_when_it_is_reached(tmp_path: Path) -> None:
    images = small_images(tmp_path, [(4, 4)] * 4)
    (tmp_path / "class1/001.png").write_bytes(b"not an image")
    assert images.image(0).shape == (4, 4, 3)
    with pytest.raises(DatasetError, match=r"001\.png: not an image"):
        images.image(2)
    with pytest.raises(DatasetError, match=r"001\.png: not an image"):
        uniform_size(images)


# ---- real images


@pytest.fixture(scope="module")
def materialised(tmp_path_factory: pytest.TempPathFactory) -> Materialise:
    script = REAL_DATA / "materialise.py"
    if not script.is_file():
        pytest.skip(f"no real images at {REAL_DATA}")

    def make(layout: str, n_classes: int, per_class: int) -> Path:
        folder = tmp_path_factory.mktemp(layout)
        limits = ["--classes", str(n_classes), "--per-class", str(per_class)]
        subprocess.run([sys.executable, script, layout, folder, *limits], check=True, capture_output=True)
        return folder

    return make


def test_miniimagenet_folders_are_read_from_the_root_and_from_the_split(materialised: Materialise) -> None:
    root = materialised("miniimagenet-folders", 3, 5)
    images = read_folder(root, split="test")
    splits = json.loads((REAL_DATA / "splits" / "miniimagenet.json").read_text())
    assert list(images.listing.class_names) == sorted(splits["test"])[:3]
    assert images.listing.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert uniform_size(images) == 84
    assert images.image(14).shape == (84, 84, 3)
    inside = read_folder(root / "test", split="test")
    assert inside.listing.image_ids == images.listing.image_ids
    with pytest.raises(DatasetError, match="no split 'train'; there are 'test'"):
        read_folder(root, split="train")


def test_cifar_fs_folders_are_cut_to_a_split_by_its_own_list(materialised: Materialise) -> None:
    root = materialised("cifar-fs-folders", 4, 3) / "cifar100"
    wanted = read_class_file(root / "splits/bertinetto/test.txt")
    images = read_folder(root / "data", split="test", class_names=wanted)
    splits = json.loads((REAL_DATA / "splits" / "cifar-fs.json").read_text())
    assert images.listing.class_names == tuple(sorted(wanted))
    assert set(wanted) <= set(splits["test"])
    assert read_class_file(REAL_DATA / "splits" / "cifar-fs.json", split="test") == tuple(splits["test"])
    assert len(images.listing.image_ids) == 12
    assert uniform_size(images) == 32
    assert images.image(0).shape == (32, 32, 3)
