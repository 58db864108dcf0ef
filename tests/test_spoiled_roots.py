"""Roots as they come out of dead links, cut downloads and half-done unpacking: read right, or refused.

Each is given to `fsnl-extract` as a user would; the last line it prints has to say what to do.
"""

import os
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from layouts import (
    MINI,
    PER_CLASS,
    cache_pickle,
    class_folders,
    digests,
    dump,
    label_pickle,
    listing_sha256,
    noise,
    read,
)

from fsnl.cache.errors import DatasetError
from fsnl.cache.reader import open_store
from fsnl.pipeline.cli.extract import main
from fsnl.pipeline.datasets.benchmarks import BENCHMARKS

TEST, TRAIN = MINI["test"], MINI["train"]
CACHE = "mini-imagenet-cache-test.pkl"
CATEGORY = "miniImageNet_category_split_test.pickle"


def extract(root: Path, *options: str, name: str = "miniimagenet") -> tuple[int, list[str]]:
    """Exit code of fsnl-extract, and the lines it printed."""
    pixels = ["--encoder", "pixels", "--image-size", "4"]
    arguments = ["--dataset", name, "--root", str(root), *pixels, "--out", str(root / "out.h5")]
    if root.is_file():
        arguments[-1] = str(root.with_name("out.h5"))
    result = CliRunner().invoke(main, [*arguments, *options])
    return result.exit_code, result.output.strip().split("\n")


def refusal(root: Path, *options: str, name: str = "miniimagenet") -> str:
    """The line that fsnl-extract ends in, with exit code 1 and nothing written."""
    code, lines = extract(root, *options, name=name)
    assert code == 1, lines
    assert not [file for file in root.rglob("*.h5*")]
    assert "Traceback" not in "\n".join(lines)
    return lines[-1].removeprefix("Error: ")


def whole(folder: Path, **options: int) -> Path:
    """A root with nothing wrong: 20 classes of three tiny images."""
    class_folders(folder / "test", TEST, side=4)
    return folder


def flat(folder: Path, *, heading: str = "filename,label", end: str = "\n") -> Path:
    """The same as `images/` with a list."""
    whole(folder / "aside")
    (folder / "images").mkdir()
    rows = [heading]
    for file in sorted((folder / "aside/test").glob("*/*.png")):
        name = f"{file.parent.name}{file.name}"
        file.rename(folder / "images" / name)
        rows.append(f"{name},{file.parent.name}")
    shutil.rmtree(folder / "aside")
    (folder / "test.csv").write_bytes("".join(row + end for row in rows).encode())
    return folder


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new, 1).encode())


# ---- folders


def test_a_root_two_levels_too_high_is_answered_with_the_right_one(tmp_path: Path) -> None:
    whole(tmp_path / "data/vision/mini")
    said = refusal(tmp_path)
    assert said.endswith(f"it lies deeper: give --root {tmp_path}/data/vision/mini")
    assert "no miniImageNet test here; looked for test/<wnid>/*.jpg, test.csv with images/, mini-" in said


def test_a_root_that_is_one_class_is_answered_with_the_right_one(tmp_path: Path) -> None:
    root = whole(tmp_path) / "test" / TEST[4]
    assert refusal(root).endswith(f"it lies above: give --root {tmp_path}/test")


def test_a_missing_class_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    shutil.rmtree(whole(tmp_path) / "test/n03544143")
    code, lines = extract(tmp_path)
    assert code == 0
    assert "19 of 20 classes: 'n03544143' is missing" in lines[0]
    assert open_store(tmp_path / "out.h5").features("test").labels.max() == 18


def test_an_extra_class_is_refused_unless_the_classes_are_listed(tmp_path: Path) -> None:
    class_folders(whole(tmp_path) / "test", ("n00000001",), side=4)
    said = refusal(tmp_path)
    assert "/test: 'n00000001' is no class of miniImageNet; take it out, or list the classes" in said
    listed = tmp_path / "classes.txt"
    listed.write_text("\n".join(TEST))
    assert extract(tmp_path, "--classes", str(listed))[0] == 0


def test_an_empty_class_is_refused(tmp_path: Path) -> None:
    for file in (whole(tmp_path) / "test" / TEST[7]).iterdir():
        file.unlink()
    assert refusal(tmp_path).endswith(
        f"/test: no image in '{TEST[7]}'; add images, or leave it out of the classes"
    )


@pytest.mark.parametrize("name", ["N01930112", "Test"])
def test_names_in_another_letter_case_are_read_right(name: str, tmp_path: Path) -> None:
    plain = listing_sha256(read("miniimagenet", whole(tmp_path)))
    if name == "Test":
        (tmp_path / "test").rename(tmp_path / name)
    else:
        (tmp_path / "test" / name.lower()).rename(tmp_path / "test" / name)
    for file in list((tmp_path).rglob("0.png")):
        file.rename(file.with_suffix(".PNG"))
    images = read("miniimagenet", tmp_path)
    assert images.listing.class_names == TEST
    assert listing_sha256(images) != plain  # the names of files are what they are
    assert digests(images)[TEST[0]] == digests(images)[TEST[1]]


def test_the_vinyals_split_is_named_as_such(tmp_path: Path) -> None:
    # Eight classes of ImageNet that Ravi and Larochelle do not use, and two that they do.
    others = tuple(f"n0161492{i}" for i in range(8))
    class_folders(tmp_path / "test", (*others, TEST[0], TRAIN[0]), side=4)
    said = refusal(tmp_path)
    assert "8 of its 10 classes are none of the 100 of Ravi and Larochelle" in said
    assert "the split of Vinyals et al. 2016, or another part of ImageNet" in said


def test_train_under_the_name_of_test_is_named_as_such(tmp_path: Path) -> None:
    class_folders(tmp_path / "test", TRAIN, side=4)
    said = refusal(tmp_path)
    assert said.endswith(
        "/test: 64 classes of miniImageNet train, none of test; ask for --split train, or get the test files"
    )


def test_a_train_class_inside_test_is_named_as_such(tmp_path: Path) -> None:
    class_folders(whole(tmp_path) / "test", (TRAIN[5],), side=4)
    said = refusal(tmp_path)
    assert f"'{TRAIN[5]}' of miniImageNet train among the classes of test; take out what is not" in said


def test_one_bad_file_stops_unless_it_shall_be_skipped(tmp_path: Path) -> None:
    bad = whole(tmp_path) / "test" / TEST[3] / "1.png"
    bad.write_bytes(bad.read_bytes()[:-30])
    assert re.search(rf"{TEST[3]}.1\.png: damaged or cut short: ", refusal(tmp_path))
    code, lines = extract(tmp_path, "--skip-unreadable")
    assert code == 0, lines
    assert f"skipped 1 image that cannot be decoded ('{TEST[3]}/1.png')" in "\n".join(lines)
    stored = open_store(tmp_path / "out.h5").features("test")
    assert len(stored.image_ids) == len(TEST) * PER_CLASS - 1
    assert f"{TEST[3]}/1.png" not in stored.image_ids
    # The same again is complete; without the option it is another request.
    assert "complete" in "\n".join(extract(tmp_path, "--skip-unreadable")[1])
    assert extract(tmp_path)[0] == 1


def test_skipping_leaves_no_class_without_images(tmp_path: Path) -> None:
    for file in (whole(tmp_path) / "test" / TEST[3]).iterdir():
        file.write_bytes(b"no image")
    assert f"no image of '{TEST[3]}' can be decoded" in refusal(tmp_path, "--skip-unreadable")


def test_an_empty_file_is_skipped_when_asked(tmp_path: Path) -> None:
    (whole(tmp_path) / "test" / TEST[3] / "1.png").write_bytes(b"")
    assert "1.png: empty file (0 bytes)" in refusal(tmp_path)
    code, lines = extract(tmp_path, "--skip-unreadable")
    assert code == 0
    assert "skipped 1 unreadable file" in lines[0]


def test_a_zip_with_the_name_of_an_image_is_told_as_such(tmp_path: Path) -> None:
    with zipfile.ZipFile(whole(tmp_path) / "test" / TEST[3] / "9.jpg", "w") as archive:
        archive.writestr("a", "b")
    assert f"{TEST[3]}/9.jpg: not an image: this is a zip archive; unpack it first" in refusal(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_in_a_circle_are_not_followed(tmp_path: Path) -> None:
    folder = whole(tmp_path) / "test" / TEST[3]
    (folder / "again").symlink_to("..", target_is_directory=True)
    code, lines = extract(tmp_path)
    assert code == 0
    assert "passed over 1 link back to a folder above" in lines[0]
    (tmp_path / "test" / "round").symlink_to("round")
    assert "/test/round: a link that leads nowhere or in a circle; remove or mend it" in refusal(
        tmp_path / "test"
    )
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(DatasetError, match=r"a: cannot be read: .*symbolic links"):
        read("miniimagenet", tmp_path / "a")


def test_a_class_in_two_folders_is_refused(tmp_path: Path) -> None:
    class_folders(whole(tmp_path) / "test", (TEST[3].upper(),), side=4)
    if len(list((tmp_path / "test").iterdir())) == len(TEST):
        pytest.skip("a file system that does not tell letter cases apart")
    assert f"class '{TEST[3]}' is there twice, as '{TEST[3].upper()}' and '{TEST[3]}'; merge" in refusal(
        tmp_path
    )


def test_a_class_listed_twice_is_refused(tmp_path: Path) -> None:
    names = BENCHMARKS["cifar-fs"].classes["test"]
    class_folders(tmp_path / "cifar100/data", names, side=4)
    listed = tmp_path / "cifar100/splits/bertinetto/test.txt"
    listed.parent.mkdir(parents=True)
    listed.write_text("\n".join([*names, names[2]]))
    assert f"test.txt: '{names[2]}' listed more than once" in refusal(tmp_path, name="cifar-fs")
    listed.write_text("\n".join([*names, "apple"]))
    assert "test.txt: 'apple' not of CIFAR-FS test as published" in refusal(tmp_path, name="cifar-fs")
    listed.write_text("\n".join(names))
    shutil.rmtree(tmp_path / "cifar100/data" / names[0])
    assert f"test.txt: lists '{names[0]}', not in " in refusal(tmp_path, name="cifar-fs")


@pytest.mark.parametrize(
    ("make", "guess"),
    [
        (lambda root: None, "the folder is empty"),
        (lambda root: (root / "a.txt").write_text("a"), "found 'a.txt'"),
        (
            lambda root: (root / "mini.zip").write_bytes(b"PK\x03\x04"),
            "found mini.zip, which is a zip archive; unpack",
        ),
        (
            lambda root: class_folders(root / "val", MINI["val"], side=2),
            "ask for --split val, or get the rest",
        ),
    ],
)
def test_where_nothing_fits_the_closest_guess_is_told(make, guess: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path)
    assert guess in refusal(tmp_path)


# ---- pickles


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (
            b"\n<!DOCTYPE html>\n<html>Too many downloads</html>",
            "an HTML page: the download failed; download it",
        ),
        (b"", "empty (0 bytes); download it again"),
        (b"PK\x03\x04abc", "a zip archive; unpack it first"),
        (b"\x1f\x8babc", "compressed with gzip; unpack it first"),
        (
            b"version https://git-lfs.github.com/spec/v1",
            "a Git LFS pointer, not the file itself; run git lfs pull",
        ),
    ],
)
def test_what_is_no_pickle_is_told(content: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / CACHE).write_bytes(content)
    for root in (tmp_path, tmp_path / CACHE):
        assert f"{CACHE}: no pickle: this is {kind}" in refusal(root)


@pytest.mark.parametrize("kept", [10, 0.5, 0.99])
def test_a_truncated_pickle_is_told(kept: float, tmp_path: Path) -> None:
    path = cache_pickle(tmp_path / CACHE, TEST, side=4)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept if kept > 1 else kept * len(content))])
    assert re.search(rf"{CACHE}: .*cut short: download it again", refusal(tmp_path))


def test_a_pickle_that_runs_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / CACHE).write_bytes(b"cos\nsystem\n(S'exit'\ntR.")
    assert "refused, for it asks for os.system" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (
            {"images": 1, "targets": 2},
            "holds 'images', 'targets'; needed are image_data and class_dict, or data and",
        ),
        ([1, 2], "holds a list; needed is a dict with image_data and class_dict"),
        ({"data": noise(60, 4)}, "holds 'data'; needed are"),
        (
            {"data": noise(60, 4), "labels": [0] * 59},
            "60 images and 59 labels; the file is spoiled, get it again",
        ),
        (
            {"data": noise(60, 4) / 255, "labels": [0] * 60},
            "its images are float64; needed is uint8, 0 to 255: save them so",
        ),
        (
            {"data": noise(60, 4).transpose(0, 3, 1, 2), "labels": [0] * 60},
            r"channels come last, save data.transpose(0, 2, 3, 1)",
        ),
        (
            {"data": noise(60, 4).reshape(60, -1), "labels": [0] * 60},
            "images are of shape (60, 48); needed is one",
        ),
        ({"data": noise(60, 4), "labels": [0.5] * 60}, "its labels are no list of integers or names"),
        ({"data": noise(60, 4), "labels": [[0]] * 60}, "its labels are no list of integers or names"),
        ({"data": [1, 2], "labels": [0, 1]}, "its images are a list; needed is one array"),
        (
            {"data": noise(64, 4), "labels": list(range(64))},
            "labels are 0 to 63: this is train, asked for test; ask for --split train",
        ),
        ({"data": noise(30, 4), "labels": list(range(30))}, "30 classes, miniImageNet test has 20"),
        ({"data": noise(4, 4), "labels": [80] * 4}, "one class alone"),
    ],
)
def test_what_a_pickle_should_not_hold_is_told(held: object, message: str, tmp_path: Path) -> None:
    dump(held, tmp_path / CATEGORY)
    said = refusal(tmp_path)
    assert f"{CATEGORY}: " in said
    assert message in said


def rows(name: str, *numbers: int) -> dict[str, list[int]]:
    members = {name: list(range(PER_CLASS * i, PER_CLASS * (i + 1))) for i, name in enumerate(TEST)}
    return {**members, name: list(numbers)}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (rows(TEST[1], 3, 4, 4), f"class_dict has row 4 twice, in '{TEST[1]}' and in '{TEST[1]}'"),
        (rows(TEST[1], 3, 4, 7), f"class_dict has row 7 twice, in '{TEST[1]}' and in '{TEST[2]}'"),
        (rows(TEST[1], 3, 4, 60), "class_dict has row 60, of 60 images"),
        (rows(TEST[1], 3, 4), "1 of 60 images are in no class"),
        (rows(TEST[1]), f"class '{TEST[1]}' is empty"),
        ({"a": "b"}, "the rows of class 'a' in class_dict are no list of integers"),
        ([], "class_dict is no dict"),
    ],
)
def test_every_row_of_a_pickle_belongs_to_one_class(members: object, message: str, tmp_path: Path) -> None:
    cache_pickle(tmp_path / CACHE, TEST, side=4, class_dict=members)
    assert message in refusal(tmp_path)


def test_the_file_of_another_split_or_data_set_is_told_by_its_name(tmp_path: Path) -> None:
    train = cache_pickle(tmp_path / "mini-imagenet-cache-train.pkl", TRAIN, side=2)
    assert refusal(train).endswith(
        "this is the train file, asked for test; ask for --split train, or give the test file"
    )
    assert "ask for --split train, or get the rest" in refusal(tmp_path)
    cifar = label_pickle(tmp_path / "CIFAR_FS_test.pickle", list(range(20)), side=2)
    assert refusal(cifar, name="fc100").endswith("use --dataset cifar-fs, or give another file")
    phase = label_pickle(
        tmp_path / "miniImageNet_category_split_train_phase_val.pickle", list(range(64)), side=2
    )
    assert "further images of the train classes, not the split val" in refusal(phase, "--split", "val")


def test_a_pickle_of_train_under_the_name_of_test_is_told_by_its_classes(tmp_path: Path) -> None:
    cache_pickle(tmp_path / CACHE, TRAIN, side=2)
    assert "64 classes of miniImageNet train, none of test; ask for --split train" in refusal(tmp_path)


# ---- lists


def test_a_list_with_carriage_returns_and_a_byte_order_mark_is_read_right(tmp_path: Path) -> None:
    images = read("miniimagenet", flat(tmp_path / "a"))
    other = read("miniimagenet", flat(tmp_path / "b", heading="\ufefffilename,label", end="\r\n"))
    assert listing_sha256(other) == listing_sha256(images)
    assert digests(other) == digests(images)


def test_a_list_may_spell_file_names_in_another_letter_case(tmp_path: Path) -> None:
    flat(tmp_path)
    plain = read("miniimagenet", tmp_path)
    before = digests(plain)
    for file in list((tmp_path / "images").iterdir())[:7]:
        file.rename(file.with_suffix(".PNG"))
    images = read("miniimagenet", tmp_path)
    assert listing_sha256(images) == listing_sha256(plain)
    assert digests(images) == before


def test_a_list_of_missing_files_is_refused(tmp_path: Path) -> None:
    flat(tmp_path)
    for name in (f"{TEST[0]}1.png", f"{TEST[2]}0.png"):
        (tmp_path / "images" / name).unlink()
    said = refusal(tmp_path)
    assert (
        f"test.csv: 2 of 60 listed images not in {tmp_path}/images, '{TEST[0]}1.png' (line 3) first" in said
    )
    shutil.rmtree(tmp_path / "images")
    assert f"its images are not beside it: no '{TEST[0]}0.png' in {tmp_path}/images" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            f"{TEST[0]}1.png,",
            f"{TEST[0]}0.png,",
            f"'{TEST[0]}0.png' is listed twice, in lines 2 and 3; take one out",
        ),
        (
            f"{TEST[0]}1.png,{TEST[0]}",
            f"{TEST[0]}0.png,{TEST[1]}",
            f"is listed twice, in lines 2 and 3, as '{TEST[0]}' and as '{TEST[1]}'",
        ),
        (f"{TEST[0]}1.png,{TEST[0]}", f"{TEST[0]}1.png,", "line 3 has no filename and label"),
        (f"{TEST[0]}1.png,{TEST[0]}", f"{TEST[0]}1.png", "line 3 has no filename and label"),
        (f"{TEST[0]}1.png,", "../secret.png,", "line 3 names '../secret.png'; needed is a path below"),
        (
            "filename,label",
            "a,b",
            "needed are the columns filename and label, and perhaps split; the first row is 'a'",
        ),
        (
            f"{TEST[0]}1.png,{TEST[0]}",
            f"{TEST[0]}1.png,{TRAIN[0]}",
            f"'{TRAIN[0]}' of miniImageNet train among",
        ),
    ],
)
def test_a_spoiled_list_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    edit(flat(tmp_path) / "test.csv", old, new)
    assert message in refusal(tmp_path)


def test_the_list_of_train_under_the_name_of_test_is_told(tmp_path: Path) -> None:
    root = flat(tmp_path)
    text = (root / "test.csv").read_text()
    for ours, theirs in zip(TEST, TRAIN, strict=False):
        text = text.replace(f",{ours}", f",{theirs}")
    (root / "test.csv").write_text(text)
    assert "20 classes of miniImageNet train, none of test; ask for --split train" in refusal(root)


# ---- anybody's folder by a list


def test_a_list_names_images_splits_and_classes_of_a_flat_folder(tmp_path: Path) -> None:
    flat(tmp_path)
    listed = tmp_path / "list.csv"
    pairs = [("b", 0, "test"), ("a", 1, "test"), ("b", 2, "train"), ("a", 0, "train"), ("b", 1, "test")]
    body = [f"{split};{label};images/{TEST[i]}{row}.png" for i, (label, row, split) in enumerate(pairs)]
    listed.write_text("\n".join(["Split;Class;Filename", *body]))
    images = read("folder", tmp_path, csv=listed)
    assert images.listing.class_names == ("a", "b")
    assert images.listing.image_ids == tuple(
        f"images/{TEST[i]}{row}.png" for i, row in ((1, 1), (0, 0), (4, 1))
    )
    assert images.listing.labels.tolist() == [0, 1, 1]
    assert (images.image(0) == noise(3, 4)[1]).all()
    assert read("folder", tmp_path, "train", csv=listed).listing.class_names == ("a", "b")
    with pytest.raises(DatasetError, match="no row of split 'val'; there are 'test', 'train'"):
        read("folder", tmp_path, "val", csv=listed)
    with pytest.raises(DatasetError, match="1 class asked for, not among its 2: 'c'"):
        read("folder", tmp_path, csv=listed, classes=("a", "c"))


def test_a_list_without_a_heading_and_without_a_root_is_read(tmp_path: Path) -> None:
    root = flat(tmp_path)
    lines = (root / "test.csv").read_text().split("\n")[1:]
    (root / "images" / "mine.csv").write_text("\n".join(lines))
    listed = ["--dataset", "folder", "--csv", str(root / "images/mine.csv")]
    arguments = [*listed, "--encoder", "pixels", "--out", str(root / "out.h5")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    stored = open_store(root / "out.h5").features("test")
    assert stored.class_names == TEST
    assert np.bincount(stored.labels).tolist() == [PER_CLASS] * 20


def test_a_list_belongs_to_folder_only(tmp_path: Path) -> None:
    assert "a CSV list is for --dataset folder" in refusal(whole(tmp_path), "--csv", str(tmp_path / "a.csv"))
