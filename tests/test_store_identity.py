"""What makes a store another one, field by field, and what does not."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import assert_refused, done, fsnl, image_folder, tree


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/, weights.pth and store.h5 made of them by a small network at 32 pixels."""
    import torch
    import torchvision

    folder = tmp_path_factory.mktemp("identity")
    image_folder(folder / "photos", {"hen": 3, "owl": 3})
    with torch.random.fork_rng(devices=[]):
        network = torchvision.models.squeezenet1_1(weights=None)
    torch.save(network.state_dict(), folder / "weights.pth")
    done("extract", *call(folder), "--out", folder / "store.h5")
    return folder


@pytest.fixture
def desk(extracted: Path, tmp_path: Path) -> Path:
    """A copy, to be changed; its files are as new as they can be."""
    copy = Path(shutil.copytree(extracted, tmp_path / "desk"))
    for path in copy.rglob("*"):
        os.utime(path)
    return copy


def call(folder: Path, *more: str) -> tuple[str | Path, ...]:
    network = ("--encoder", "torchvision:squeezenet1_1", "--weights", folder / "weights.pth")
    options = () if "--image-size" in more else ("--image-size", "32")
    return ("--dataset", "folder", "--root", folder / "photos", *network, *options, *more)


def rename(desk: Path) -> None:
    (desk / "photos" / "owl" / "001.png").rename(desk / "photos" / "owl" / "009.png")


def add(desk: Path) -> None:
    shutil.copy(desk / "photos" / "owl" / "001.png", desk / "photos" / "owl" / "009.png")


def enlarge(desk: Path) -> None:
    with (desk / "photos" / "owl" / "001.png").open("ab") as file:
        file.write(b"\0")


def move_class(desk: Path) -> None:
    (desk / "photos" / "owl").rename(desk / "photos" / "eagle")


def flip_weight(desk: Path) -> None:
    data = bytearray((desk / "weights.pth").read_bytes())
    data[len(data) // 2] ^= 1
    (desk / "weights.pth").write_bytes(data)


def rename_weights(desk: Path) -> None:
    shutil.copy(desk / "weights.pth", desk / "other.pth")


CHANGES: dict[str, tuple[Callable[[Path], None] | None, tuple[str, ...], str]] = {
    "an image renamed": (rename, (), r"split 'test': 1 images? added, 'owl/009.png' first"),
    "an image added": (add, (), r"split 'test': 1 images? added, 'owl/009.png' first"),
    "an image of another size": (enlarge, (), "split 'test': image files changed in size"),
    "a class renamed": (move_class, (), r"split 'test': 3 images? added, 'eagle/000.png' first"),
    "a byte of the weights": (flip_weight, (), r"encoder.weights_sha256 is [0-9a-f]{64}, asked [0-9a-f]{64}"),
    "the layer": (None, ("--layer", "features.3"), "encoder.layer is pooled, asked features.3"),
    "the size": (None, ("--image-size", "40"), "preprocessing.crop is 32, asked 40"),
    "the precision": (None, ("--precision", "bf16"), "encoder.precision is fp32, asked bf16"),
    "the encoder": (None, ("--encoder", "pixels"), "encoder.name is torchvision:squeezenet1_1, asked pixels"),
    "labels used": (None, ("--labels-used", "5"), "encoder.labels_used.train is None, asked 5"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_refused_with_the_name_of_what_changed(change: str, desk: Path) -> None:
    edit, options, message = CHANGES[change]
    if edit is not None:
        edit(desk)
    arguments = call(desk, *options)
    if "pixels" in options:
        arguments = ("--dataset", "folder", "--root", desk / "photos", "--image-size", "32", *options)
    before = tree(desk)
    outcome = fsnl("extract", *arguments, "--out", desk / "store.h5")
    assert_refused(outcome, rf"store.h5: made for something else: .*{message}.*use another --out, or --force")
    assert tree(desk) == before


def test_dates_and_folders_change_nothing(desk: Path) -> None:
    before = (desk / "store.h5").read_bytes()
    outcome = done("extract", *call(desk), "--out", desk / "store.h5")
    assert "is complete: test extracted before" in outcome.stderr
    moved = desk.rename(desk.with_name("elsewhere"))
    for path in moved.rglob("*"):
        os.utime(path, (0, 0))
    outcome = done("extract", *call(moved), "--out", moved / "store.h5")
    assert "is complete: test extracted before" in outcome.stderr
    assert (moved / "store.h5").read_bytes() == before


def test_how_it_is_run_changes_nothing(desk: Path) -> None:
    options = ("--batch-size", "3", "--workers", "0", "--device", "cpu")
    assert "is complete" in done("extract", *call(desk, *options), "--out", desk / "store.h5").stderr
