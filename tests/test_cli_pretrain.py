"""fsnl-pretrain as a user calls it, and what fsnl-extract makes of its checkpoints."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import assert_refused, done, fsnl, image_folder

from fsnl.cache.reader import open_store

SMALL = ("--encoder", "conv4:8", "--epochs", "2", "--batch-size", "8", "--device", "cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty images to train on, in two classes; 5 classes of 20 for val, and two of two to measure on."""
    root = image_folder(tmp_path_factory.mktemp("photos"), {"ape": 10, "hen": 10}, folder="train", side=12)
    image_folder(root, dict.fromkeys(("bee", "cat", "dog", "elk", "fox"), 20), folder="val", side=12, seed=1)
    return image_folder(root, {"owl": 2, "tit": 2}, folder="test", side=12, seed=2)


def call(photos: Path, out: Path, *more: str) -> tuple[str | Path, ...]:
    return ("--dataset", "folder", "--root", photos, *SMALL, "--out", out, *more)


def test_stdout_is_the_path_alone_and_stderr_says_what_was_seen_and_learnt(
    photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "net.pt"
    outcome = done("pretrain", *call(photos, out))
    assert outcome.stdout == f"{out}\n"
    assert "train: 20 images below" in outcome.stderr
    assert "labels are not looked at" in outcome.stderr
    assert "epoch 2 of 2: loss " in outcome.stderr
    assert "is complete: 2 epochs" in done("pretrain", *call(photos, out)).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["net.pt"]


def test_the_checkpoint_is_an_encoder_that_cost_no_label(photos: Path, tmp_path: Path) -> None:
    done("pretrain", *call(photos, tmp_path / "net.pt"))
    images = ("--dataset", "folder", "--root", photos, "--encoder", f"checkpoint:{tmp_path / 'net.pt'}")
    outcome = done("extract", *images, "--out", tmp_path / "s.h5")
    assert "no labels seen in training" in outcome.stderr
    store = open_store(tmp_path / "s.h5")
    assert store.features("test").embeddings.shape == (4, 8 * 2 * 2), "conv4 of width 8 at 32 px"
    assert store.header.encoder.labels_used.train == 0
    assert store.header.encoder.labels_used.val == 0


def test_a_check_on_val_is_shown_and_its_labels_are_spent(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "net.pt"
    outcome = done("pretrain", *call(photos, out, "--check-val", "--stop-after", "1"))
    assert "epoch 1: " in outcome.stderr
    assert "% 1-shot" in outcome.stderr
    assert "on val (5 classes, 600 episodes)" in outcome.stderr
    checked = torch.load(out, weights_only=True)
    assert checked["labels_used"] == {"train": 0, "val": 100}
    assert [check[0] for check in checked["checks"]] == [1]
    # gone on without the check: what was spent stays spent
    assert "resuming after 2 of 4 steps" in done("pretrain", *call(photos, out)).stderr
    ended = torch.load(out, weights_only=True)
    assert ended["labels_used"] == {"train": 0, "val": 100}
    done("pretrain", *call(photos, tmp_path / "unchecked.pt"))
    unchecked = torch.load(tmp_path / "unchecked.pt", weights_only=True)
    assert ended["losses"] == unchecked["losses"], "a check changes nothing"


def test_another_training_at_the_same_path_is_refused(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "net.pt"
    done("pretrain", *call(photos, out))
    before = out.read_bytes()
    outcome = fsnl("pretrain", *call(photos, out, "--epochs", "3", "--temperature", "0.5"))
    assert_refused(
        outcome, r"epochs 2, asked for 3; temperature 0.2, asked for 0.5; use another --out, or --f"
    )
    assert out.read_bytes() == before
    done("pretrain", *call(photos, out, "--epochs", "1", "--force"))
    assert out.read_bytes() != before


def test_images_of_a_test_split_are_never_taken_with_others(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "photos", {"ape": 9}, folder="train", side=8)
    image_folder(root, {"owl": 9}, folder="test", side=8, seed=1)
    image_folder(root, {"x": 1}, folder="misc", side=8, seed=2)
    outcome = fsnl("pretrain", *call(root, tmp_path / "net.pt"))
    assert_refused(
        outcome, r"photos: 'test', 'train' may be a split, or a class as 'misc'; move what does not"
    )
    (root / "misc" / "x" / "000.png").unlink()
    assert "train: 9 images below" in done("pretrain", *call(root, tmp_path / "net.pt")).stderr


def test_a_folder_without_splits_has_no_val_to_check_on(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "photos", dict.fromkeys("abcde", 20), side=8)
    outcome = fsnl("pretrain", *call(root, tmp_path / "net.pt", "--check-val"))
    assert_refused(outcome, r"photos: no split 'val', which --check-val needs")


def test_extraction_tells_that_a_training_has_not_ended(photos: Path, tmp_path: Path) -> None:
    half = tmp_path / "half.pt"
    done("pretrain", *call(photos, half, "--stop-after", "1"))
    images = ("--dataset", "folder", "--root", photos, "--encoder", f"checkpoint:{half}")
    outcome = done("extract", *images, "--out", tmp_path / "s.h5")
    assert "warning: half.pt is of a training that has not ended, 1 of 2 epochs" in outcome.stderr


@pytest.mark.parametrize(
    ("more", "code", "reason"),
    [
        (("--split", "test"), 1, "split 'test' holds the novel classes"),
        (("--split", "Novel"), 1, "split 'Novel' holds the novel classes"),
        (("--split", "val", "--check-val"), 1, "--check-val is for trainings on another split than val"),
        (("--split", "base"), 1, r"no split 'base'; there are 'test', 'train', 'val'"),
        (("--temperature", "0"), 2, "0.0 is not a positive number"),
        (("--learning-rate", "nan"), 2, "nan is not a positive number"),
        (("--momentum", "1"), 2, r"1.0 is not in \[0, 1\)"),
        (("--weight-decay", "-1"), 2, "-1.0 is not 0 or more"),
        (("--views", "crop"), 2, "crop"),
        (
            ("--encoder", "resnet11"),
            1,
            "unknown network 'resnet11'; give resnet10 or conv4, with :WIDTH, or torchvision:NAME",
        ),
        (("--encoder", "torchvision:no"), 1, "has no classification network 'no'"),
        (("--batch-size", "64"), 1, "20 images fill no batch of 64; use a smaller --batch-size"),
        (("--device", "cuda:7"), 1, "device 'cuda:7' is not here"),
    ],
)
def test_a_wrong_call_is_one_line(
    more: tuple[str, ...], code: int, reason: str, photos: Path, tmp_path: Path
) -> None:
    outcome = fsnl("pretrain", *call(photos, tmp_path / "net.pt", *more))
    assert_refused(outcome, reason, code=code)
    assert not list(tmp_path.iterdir())


def test_a_real_network_learns_what_pixels_do_not_tell(
    materialise: Callable[..., Path], tmp_path: Path
) -> None:
    root = materialise("cifar-fs-folders", "--per-class", "20")
    images = ("--dataset", "cifar-fs", "--root", root)
    recipe = ("--encoder", "conv4:16", "--epochs", "4", "--batch-size", "64")
    done("pretrain", *images, *recipe, "--out", tmp_path / "net.pt")
    losses = torch.load(tmp_path / "net.pt", weights_only=True)["losses"]
    assert losses[-1] < losses[0] - 0.5
    done("extract", *images, "--encoder", f"checkpoint:{tmp_path / 'net.pt'}", "--out", tmp_path / "s.h5")
    outcome = done("score", tmp_path / "s.h5", "--episodes", "500", "--format", "json")
    for run in json.loads(outcome.stdout)["runs"]:
        assert run["labels_used"]["train"] == 0
        assert 0.25 < run["accuracy"] < 0.6
