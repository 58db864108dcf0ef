"""fsnl-extract as a user calls it: once, again, with another split, with something else."""

import re
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from checkout import run
from commands import assert_refused, done, fsnl, fsnl_process, image_folder, tree
from PIL import Image

from fsnl.cache.fingerprint import image_digest
from fsnl.cache.reader import open_store

CLASSES = {"hen": 4, "owl": 3, "tit": 5}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two splits of three classes, 4 x 4 pixels of noise."""
    root = tmp_path / "photos"
    image_folder(root, CLASSES, folder="test")
    return image_folder(root, {"ape": 2, "bee": 2}, folder="train", seed=1)


def folder_call(root: Path, out: Path, *more: str) -> tuple[str | Path, ...]:
    return ("--dataset", "folder", "--root", root, "--encoder", "pixels", "--out", out, *more)


def test_without_arguments_it_extracts_the_digits_into_the_users_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSNL_HOME", str(tmp_path / "not" / "yet" / "there"))
    outcome = done("extract")
    path = Path(outcome.stdout.removesuffix("\n"))
    assert path.parent == tmp_path / "not" / "yet" / "there"
    features = open_store(path).features("test")
    assert features.embeddings.shape == (1797, 128), "by the encoder that fsnl brings along"
    assert features.class_names == tuple("0123456789")
    assert done("extract").stdout == outcome.stdout
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_stdout_is_the_path_alone_and_stderr_says_what_was_done(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "photos.h5"
    outcome = fsnl_process("extract", *folder_call(photos, out), cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (0, f"{out}\n")
    assert "test: 3 classes, 12 images in " in outcome.stderr
    assert "encoder pixels, fp32, on cpu; no labels seen in training\nimages 4 x 4 px, " in outcome.stderr
    assert re.search(r"test: 12 images in [\d.]+ s", outcome.stderr)
    assert "\r" not in outcome.stderr, "no progress bar where there is no terminal"


def test_what_is_stored_is_each_image_in_its_place(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "photos.h5"
    done("extract", *folder_call(photos, out))
    store = open_store(out)
    features = store.features("test")
    assert features.class_names == ("hen", "owl", "tit")
    assert features.labels.tolist() == [0] * 4 + [1] * 3 + [2] * 5
    assert features.image_ids[4] == "owl/000.png"
    for row, name in enumerate(features.image_ids):
        pixels = np.asarray(Image.open(photos / "test" / name))
        np.testing.assert_array_equal(features.embeddings[row], pixels.ravel().astype(np.float32) / 255)
        assert features.image_digests[row] == image_digest(pixels)
    assert store.header.dataset.name == "folder"
    assert store.header.encoder.name == "pixels"
    assert (store.header.encoder.labels_used.train, store.header.encoder.labels_used.val) == (0, 0)


def test_nothing_but_the_environment_of_batches_depends_on_how_it_is_run(
    photos: Path, tmp_path: Path
) -> None:
    stores = []
    for i, options in enumerate(
        (["--batch-size", "1", "--workers", "0"], ["--batch-size", "5", "--workers", "3"])
    ):
        out = tmp_path / f"{i}.h5"
        done("extract", *folder_call(photos, out, *options))
        stores.append(open_store(out))
    one, other = (store.features("test") for store in stores)
    assert one.embeddings.tobytes() == other.embeddings.tobytes()
    np.testing.assert_array_equal(one.image_digests, other.image_digests)
    assert stores[0].fingerprints == stores[1].fingerprints


def test_run_again_it_is_complete_at_once_and_opens_no_image(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "photos.h5"
    done("extract", *folder_call(photos, out))
    before = out.read_bytes()
    for image in photos.rglob("*.png"):  # of the same size, or it would be another image
        image.write_bytes(b"\0" * image.stat().st_size)
    outcome = done("extract", *folder_call(photos, out))
    assert outcome.stdout == f"{out}\n"
    assert "is complete: test extracted before" in outcome.stderr
    assert out.read_bytes() == before


def test_run_again_it_loads_no_torch(photos: Path, tmp_path: Path) -> None:
    network = ("--encoder", "torchvision:squeezenet1_1", "--weights", "random:0", "--image-size", "32")
    arguments = [str(part) for part in folder_call(photos, tmp_path / "photos.h5", *network)]
    code = f"""
import sys
from fsnl.pipeline.cli.extract import main
try:
    main({arguments!r})
finally:
    print("torch" in sys.modules)
"""
    loaded = [run(sys.executable, "-c", code, cwd=tmp_path).stdout.split() for _ in range(2)]
    assert [words[-1] for words in loaded] == ["True", "False"]
    assert loaded[0][:-1] == loaded[1][:-1] == [str(tmp_path / "photos.h5")]


def test_another_split_is_added_and_both_are_there(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "photos.h5"
    done("extract", *folder_call(photos, out))
    before = open_store(out).features("test")
    for image in (photos / "test").rglob("*.png"):  # the first split is not encoded again
        image.write_bytes(b"\0" * image.stat().st_size)
    outcome = done("extract", *folder_call(photos, out, "--split", "train"))
    assert "train: 2 classes, 4 images" in outcome.stderr
    store = open_store(out)
    assert store.splits == ("test", "train")
    after = store.features("test")
    assert after.embeddings.tobytes() == before.embeddings.tobytes()
    assert after.image_ids == before.image_ids
    assert store.features("train").class_names == ("ape", "bee")
    both = done("extract", *folder_call(photos, out, "--split", "test", "--split", "train"))
    assert "is complete: test, train extracted before" in both.stderr


def test_several_splits_at_once_equal_one_after_the_other(photos: Path, tmp_path: Path) -> None:
    done("extract", *folder_call(photos, tmp_path / "a.h5", "--split", "test", "--split", "train"))
    done("extract", *folder_call(photos, tmp_path / "b.h5", "--split", "train", "--split", "train"))
    done("extract", *folder_call(photos, tmp_path / "b.h5"))
    one, other = open_store(tmp_path / "a.h5"), open_store(tmp_path / "b.h5")
    assert one.fingerprints == other.fingerprints
    for split in ("test", "train"):
        np.testing.assert_array_equal(one.features(split).embeddings, other.features(split).embeddings)


def test_something_else_at_out_is_refused_field_by_field(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "photos.h5"
    done("extract", *folder_call(photos, out))
    before = tree(tmp_path)
    network = ("--encoder", "torchvision:squeezenet1_1", "--weights", "random:3", "--image-size", "32")
    outcome = fsnl("extract", *folder_call(photos, out, *network))
    assert_refused(outcome, "photos.h5: made for something else: ")
    for words in (
        "encoder.name is pixels, asked torchvision:squeezenet1_1",
        "encoder.weights is none, asked random:3",
        "preprocessing.crop is 4, asked 32",
        "use another --out, or --force to replace it",
    ):
        assert words in outcome.reason
    digits = fsnl("extract", "--out", out)
    assert_refused(digits, "dataset.name is folder, asked digits")
    assert tree(tmp_path) == before


def test_other_images_under_the_same_name_are_refused(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "photos.h5"
    done("extract", *folder_call(photos, out))
    shutil.copy(photos / "test" / "hen" / "000.png", photos / "test" / "owl" / "900.png")
    assert_refused(
        fsnl("extract", *folder_call(photos, out)), r"split 'test': 1 images? added, 'owl/900.png' first"
    )
    (photos / "test" / "owl" / "900.png").unlink()
    (photos / "test" / "tit" / "004.png").unlink()
    assert_refused(
        fsnl("extract", *folder_call(photos, out)), r"split 'test': 1 images? missing, 'tit/004.png' first"
    )


def test_force_replaces_whatever_lies_there(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "photos.h5"
    out.write_text("a diary")
    done("extract", *folder_call(photos, out, "--force"))
    assert open_store(out).splits == ("test",)
    done("extract", *folder_call(photos, out, "--image-size", "3", "--force"))
    assert open_store(out).features("test").embeddings.shape == (12, 27)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["photos", "photos.h5"]


def test_moved_images_are_the_same_images(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "photos.h5"
    done("extract", *folder_call(photos, out))
    moved = photos.rename(tmp_path / "moved")
    assert "is complete" in done("extract", *folder_call(moved, out)).stderr


def test_a_list_of_classes_keeps_those(photos: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "novel.txt"
    wanted.write_text("tit\nhen\n")
    done("extract", *folder_call(photos, tmp_path / "two.h5", "--classes", str(wanted)))
    features = open_store(tmp_path / "two.h5").features("test")
    assert features.class_names == ("hen", "tit")
    assert len(features.labels) == 9


def test_black_images_are_reported_and_stored(photos: Path, tmp_path: Path) -> None:
    black = photos / "test" / "owl" / "001.png"
    Image.new("RGB", (4, 4)).save(black)
    outcome = done("extract", *folder_call(photos, tmp_path / "photos.h5"))
    assert "warning: 1 embeddings are all zero: 'owl/001.png'" in outcome.stderr
    assert len(open_store(tmp_path / "photos.h5").features("test").labels) == 12


def test_names_that_are_hard_to_write_are_kept(tmp_path: Path) -> None:
    long = "n" * 200
    photos = image_folder(tmp_path / "photos", {"Übung": 2, "猫": 2, "two words, and 'more'": 2, long: 2})
    done("extract", *folder_call(photos, tmp_path / "p.h5"))
    features = open_store(tmp_path / "p.h5").features("test")
    assert features.class_names == tuple(sorted(["Übung", "猫", "two words, and 'more'", long]))
    with h5py.File(tmp_path / "p.h5") as file:
        assert file["splits/test/class_names"][()].tolist()[-1].decode() == "猫"


def test_an_error_in_the_middle_leaves_nothing_beside_the_store(photos: Path, tmp_path: Path) -> None:
    spoiled = photos / "test" / "tit" / "004.png"  # the last
    spoiled.write_bytes(spoiled.read_bytes()[:50])
    before = tree(tmp_path)
    outcome = fsnl("extract", *folder_call(photos, tmp_path / "p.h5", "--batch-size", "2"))
    assert_refused(outcome, r"tit/004\.png")
    assert tree(tmp_path) == before
