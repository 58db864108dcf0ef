"""What goes wrong through no fault of the code ends in one clear last line, and loses nothing."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from checkout import run
from commands import Outcome, assert_refused, done, fsnl, fsnl_process, image_folder, tree
from stores import clusters, even_labels, write_store

Arguments = tuple[str, ...]


@pytest.fixture(scope="module")
def desk_as_found(tmp_path_factory: pytest.TempPathFactory, tiny_store: Path) -> Path:
    """A folder of what the calls below name."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "diary.txt").write_text("a diary\n" * 50)
    image_folder(folder / "photos", {"hen": 3, "owl": 3})
    image_folder(folder / "one-class", {"hen": 3})
    (folder / "empty").mkdir()
    image_folder(folder / "splits", {"hen": 2, "owl": 2}, folder="train")
    spoiled = image_folder(folder / "spoiled", {"hen": 3, "owl": 3}) / "owl" / "001.png"
    spoiled.write_bytes(spoiled.read_bytes()[:60])
    (folder / "wanted.txt").write_text("hen\ncuckoo\n")
    shutil.copy(tiny_store, folder / "tiny.h5")
    whole = tiny_store.read_bytes()
    (folder / "cut.h5").write_bytes(whole[: len(whole) // 2])
    with h5py.File(folder / "foreign.h5", "w") as file:
        file["x"] = 1
    names = [f"bird {c}" for c in range(6)]
    embeddings = clusters(n_classes=6, n_per_class=12, dim=8)
    labels = even_labels(n_classes=6, n_per_class=12)
    birds = write_store(folder / "birds.h5", embeddings, labels, class_names=names)
    embeddings[17, 3] = np.nan
    write_store(folder / "nan.h5", embeddings, labels)
    done("sample", birds, "--episodes", "5", "--query", "2", "--out", folder / "birds-episodes.h5")
    photos = ("--dataset", "folder", "--root", folder / "photos", "--encoder", "pixels")
    done("extract", *photos, "--out", folder / "photos.h5")
    return folder


@pytest.fixture
def desk(desk_as_found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, the current folder of a user who gets everything wrong."""
    folder = Path(shutil.copytree(desk_as_found, tmp_path / "desk"))
    monkeypatch.chdir(folder)
    return folder


def ids(calls: list[tuple[Arguments, int, str]]) -> list[str]:
    return [" ".join(arguments) for arguments, _, _ in calls]


PHOTOS = ("extract", "--dataset", "folder", "--root", "photos", "--encoder", "pixels")
CALLS: list[tuple[Arguments, int, str]] = [
    # The images.
    (("extract", "--dataset", "folder", "--root", "nowhere"), 1, "nowhere: no such folder"),
    (("extract", "--dataset", "folder", "--root", "diary.txt"), 1, "diary.txt: a file, not a folder"),
    (("extract", "--dataset", "folder", "--root", "empty"), 1, "empty: no image: needed are <class>/<image>"),
    (("extract", "--dataset", "folder", "--root", "one-class"), 1, r"one-class: one class alone \('hen'\)"),
    (("extract", "--dataset", "folder", "--root", "spoiled"), 1, r"spoiled/owl/001\.png"),
    (("extract", "--dataset", "folder", "--root", "splits"), 1, "splits: no split 'test'; there are 'train'"),
    (("extract", "--dataset", "folder"), 1, "data set 'folder' needs --root"),
    (("extract", "--dataset", "pictures"), 1, "unknown data set 'pictures'; there are digits, folder"),
    (("extract", "--root", "photos"), 1, "digits comes with fsnl and takes no root"),
    (("extract", "--split", "train"), 1, "digits has one split, 'test'; asked for 'train'"),
    (("extract", "--split", "a/b"), 2, "'a/b' cannot name a split"),
    ((*PHOTOS, "--classes", "nowhere.txt"), 1, "nowhere.txt: cannot be read: No such file"),
    ((*PHOTOS, "--classes", "wanted.txt"), 1, "1 class asked for, not among its 2: 'cuckoo'"),
    ((*PHOTOS, "--image-size", "0"), 2, "'--image-size': 0 is not in the range x>=1"),
    # The encoder.
    ((*PHOTOS, "--encoder", "pixel"), 1, "unknown encoder 'pixel'; give pixels, "),
    ((*PHOTOS, "--encoder", "torchvision:resnet17", "--weights", "random:0"), 1, "resnet17"),
    (
        (*PHOTOS, "--encoder", "torchvision:resnet18"),
        1,
        "torchvision:resnet18 needs weights: give random:SEED",
    ),
    ((*PHOTOS, "--weights", "random:0"), 1, "pixels has no weights to load"),
    ((*PHOTOS, "--encoder", "torchvision:resnet18", "--weights", "random:x"), 1, "SEED must be an integer"),
    (
        (*PHOTOS, "--encoder", "torchvision:resnet18", "--weights", "nowhere.pth"),
        1,
        "'nowhere.pth': no such file",
    ),
    (
        (*PHOTOS, "--encoder", "torchvision:resnet18", "--weights", "diary.txt"),
        1,
        "diary.txt: not a file that torch",
    ),
    ((*PHOTOS, "--labels-used", "-1"), 2, "'--labels-used': -1 is not in the range x>=0"),
    ((*PHOTOS, "--precision", "fp8"), 2, "'fp8' is not one of 'fp32', 'bf16', 'fp16'"),
    # The place of the store.
    ((*PHOTOS, "--out", "diary.txt"), 1, "diary.txt: not an HDF5 file.*use another --out, or --force"),
    ((*PHOTOS, "--out", "empty"), 1, "empty: is a folder"),
    ((*PHOTOS, "--out", "nowhere/p.h5"), 1, "nowhere/p.h5: there is no folder nowhere; make it first"),
    ((*PHOTOS, "--out", "diary.txt/p.h5"), 1, r"diary.txt/p.h5: "),
    ((*PHOTOS, "--out", "cut.h5"), 1, "cut.h5: truncated or damaged feature store.*--out, or --force"),
    ((*PHOTOS, "--out", "foreign.h5"), 1, "foreign.h5: is an HDF5 file that fsnl did not make.*--force"),
    ((*PHOTOS, "--out", "birds-episodes.h5"), 1, "birds-episodes.h5: is an episode file.*--force"),
    (
        (*PHOTOS, "--image-size", "3", "--out", "photos.h5"),
        1,
        r"photos.h5: made for something else: .*asked 3",
    ),
    # Sampling.
    (("sample", "nowhere.h5", "--out", "e.h5"), 1, "nowhere.h5: no such feature store"),
    (("sample", "diary.txt", "--out", "e.h5"), 1, "diary.txt: not an HDF5 file, needed a feature store"),
    (
        ("sample", "cut.h5", "--out", "e.h5"),
        1,
        "cut.h5: truncated or damaged feature store .*; make it again",
    ),
    (("sample", "empty", "--out", "e.h5"), 1, "empty: is a folder, needed a feature store"),
    (("sample", "tiny.h5", "--way", "0", "--out", "e.h5"), 2, "'--way': 0 is not in the range x>=1"),
    (("sample", "tiny.h5", "--shot", "0", "--out", "e.h5"), 2, "'--shot': 0 is not in the range x>=1"),
    (("sample", "tiny.h5", "--query", "0", "--out", "e.h5"), 2, "'--query': 0 is not in the range x>=1"),
    (("sample", "tiny.h5", "--episodes", "0", "--out", "e.h5"), 2, "'--episodes': 0 is not in the range"),
    (("sample", "tiny.h5", "--seed", "-1", "--out", "e.h5"), 2, "'--seed': -1 is not in the range"),
    (("sample", "tiny.h5", "--way", "7", "--out", "e.h5"), 1, "has 6 classes, fewer than n_way = 7"),
    (("sample", "tiny.h5", "--out", "e.h5"), 1, r"class 'class-000' has 12 images, fewer than .* 1 \+ 15"),
    (("sample", "tiny.h5", "--split", "val", "--out", "e.h5"), 1, "tiny.h5: has no split 'val', only test"),
    (("sample", "tiny.h5"), 2, "Missing option '--out'"),
    (("sample", "--out", "e.h5"), 2, "Missing argument 'STORE'"),
    (
        ("sample", "tiny.h5", "--query", "2", "--out", "diary.txt"),
        1,
        "diary.txt: exists already; use another",
    ),
    (("sample", "tiny.h5", "--query", "2", "--out", "tiny.h5"), 1, "tiny.h5: exists already; use another"),
    (("sample", "tiny.h5", "--query", "2", "--out", "nowhere/e.h5"), 1, "there is no folder nowhere"),
    # Scoring.
    (("score",), 1, "fsnl-home: holds no feature store; name one, or make one with fsnl-extract"),
    (("score", "nowhere.h5"), 1, "nowhere.h5: no such feature store"),
    (("score", "diary.txt"), 1, "diary.txt: not an HDF5 file, needed a feature store"),
    (("score", "cut.h5"), 1, "cut.h5: truncated or damaged feature store .*; make it again"),
    (
        ("score", "foreign.h5"),
        1,
        "foreign.h5: is an HDF5 file that fsnl did not make, needed a feature store",
    ),
    (("score", "birds-episodes.h5"), 1, "birds-episodes.h5: is an episode file, needed a feature store"),
    (("score", "tiny.h5", "--way", "0"), 2, "'--way': 0 is not in the range x>=1"),
    (("score", "tiny.h5", "--shot", "1", "--shot", "0"), 2, "'--shot': 0 is not in the range x>=1"),
    (("score", "tiny.h5", "--threads", "0"), 2, "'--threads': 0 is not in the range x>=1"),
    (("score", "tiny.h5", "--seed", "x"), 2, "'--seed': 'x' is not a valid integer range"),
    (("score", "tiny.h5", "--format", "xml"), 2, "'xml' is not one of 'table', 'json'"),
    (("score", "tiny.h5", "--way", "7"), 1, "has 6 classes, fewer than n_way = 7; ask for fewer ways"),
    (("score", "tiny.h5"), 1, r"class 'class-000' has 12 images, fewer than n_shot \+ n_query = 5 \+ 15"),
    (("score", "tiny.h5", "--split", "val"), 1, "tiny.h5: has no split 'val', only test; extract it with"),
    (("score", "tiny.h5", "--query", "2", "--classifier", "2nn"), 1, "no classifier '2nn', there are 1nn"),
    (("score", "nan.h5", "--query", "2"), 1, r"1 of 72 embeddings hold NaN or infinity \('class-001/00017"),
    (("score", "tiny.h5", "--episodes-file", "nowhere.h5"), 1, "nowhere.h5: no such episode file"),
    (
        ("score", "tiny.h5", "--episodes-file", "diary.txt"),
        1,
        "diary.txt: not an HDF5 file, needed an episode",
    ),
    (("score", "tiny.h5", "--episodes-file", "tiny.h5"), 1, "is a feature store, needed an episode file"),
    (
        ("score", "tiny.h5", "--episodes-file", "birds-episodes.h5"),
        1,
        "birds-episodes.h5: drawn from split 'test'",
    ),
    (("score", "birds.h5", "tiny.h5", "--episodes-file", "birds-episodes.h5"), 1, "tiny.h5 has labels"),
    (("score", "tiny.h5", "--query", "2", "--out", "diary.txt"), 1, "diary.txt: exists already; use another"),
    (("score", "tiny.h5", "--query", "2", "--out", "tiny.h5"), 1, "tiny.h5: exists already; use another"),
    (("score", "tiny.h5", "--query", "2", "--out", "empty"), 1, "empty: is a folder; name a file"),
    (("score", "tiny.h5", "--query", "2", "--out", "nowhere/r.h5"), 1, "there is no folder nowhere"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), CALLS, ids=ids(CALLS))
def test_a_wrong_call_ends_in_one_clear_line_and_loses_nothing(
    arguments: Arguments, code: int, message: str, desk: Path
) -> None:
    before = tree(desk)
    if arguments[0] == "extract" and "--out" not in arguments:
        arguments = (*arguments, "--out", "new.h5")
    assert_refused(fsnl(*arguments), message, code=code)
    assert tree(desk) == before


def test_weights_of_another_architecture_are_refused(desk: Path) -> None:
    import torch
    import torchvision

    torch.save(torchvision.models.squeezenet1_0(weights=None).state_dict(), desk / "other.pth")
    before = tree(desk)
    network = ("--encoder", "torchvision:squeezenet1_1", "--weights", "other.pth", "--image-size", "32")
    outcome = fsnl(*PHOTOS, *network, "--out", "new.h5")
    assert_refused(outcome, r"other.pth: .*torchvision:squeezenet1_1.* needs")
    assert tree(desk) == before


def test_the_reason_is_the_last_line_of_a_process_too(desk: Path) -> None:
    """As above, but for what only a real process has: its streams, its exit status, the end of libraries."""
    for arguments, code, message in (CALLS[0], CALLS[4], CALLS[-1]):
        assert_refused(fsnl_process(*arguments, cwd=desk), message, code=code)


# Drops root's power to pass over permission bits, for good, and becomes the command.
WITHOUT_POWER = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def as_a_user() -> tuple[str | Path, ...]:
    """What starts a command that has to obey permission bits; root does not have to."""
    if os.geteuid() != 0:
        return ()
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "prctl") or libc.prctl(23, 1, 0, 0, 0) != 1:  # PR_CAPBSET_READ
        pytest.skip("runs as root, which may write anywhere, and cannot drop that power here")
    return (sys.executable, "-c", WITHOUT_POWER)


@pytest.mark.parametrize(
    "arguments",
    [
        (*PHOTOS, "--out", "closed/new.h5"),
        ("sample", "tiny.h5", "--query", "2", "--out", "closed/new.h5"),
        ("score", "tiny.h5", "--query", "2", "--out", "closed/new.h5"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_permission_to_write_is_said(
    arguments: Arguments, desk: Path, as_a_user: tuple[str | Path, ...]
) -> None:
    (desk / "closed").mkdir()
    (desk / "closed").chmod(0o555)
    before = tree(desk)
    outcome = fsnl_process(*arguments, cwd=desk, before=as_a_user)
    assert_refused(outcome, r"closed/new.h5: no permission to write in .*closed")
    assert tree(desk) == before


@pytest.mark.parametrize(
    ("arguments", "closed", "code", "message"),
    [
        (("score", "tiny.h5"), "tiny.h5", 2, "Path 'tiny.h5' is not readable"),
        (PHOTOS, "photos", 2, "'--root': Path 'photos' is not readable"),
        (PHOTOS, "photos/owl/001.png", 1, r"photos/owl/001\.png: .*Permission denied"),
        (("score", "empty/tiny.h5"), "empty", 1, "empty/tiny.h5: .*Permission denied"),
        ((*PHOTOS, "--out", "empty/new.h5"), "empty", 1, "empty/new.h5: .*Permission denied"),
    ],
    ids=["store", "images", "image", "folder of the store", "folder of --out"],
)
def test_no_permission_to_read_is_said(
    arguments: Arguments, closed: str, code: int, message: str, desk: Path, as_a_user: tuple[str | Path, ...]
) -> None:
    (desk / closed).chmod(0)
    try:
        outcome = fsnl_process(*arguments, cwd=desk, before=as_a_user)
    finally:
        (desk / closed).chmod(0o755)
    assert_refused(outcome, message, code=code)


@pytest.fixture
def small_disk(desk: Path) -> Iterator[Callable[[int], Path]]:
    """`small_disk(kib)`: a file system of that size at desk/disk, with a diary on it."""
    folder = desk / "disk"
    folder.mkdir()
    mounted = []

    def mount(kib: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", str(folder)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("needs a file system of its own to fill, and may not mount one here")
        mounted.append(folder)
        (folder / "diary.txt").write_text("a diary\n")
        return folder

    yield mount
    for place in mounted:
        subprocess.run(["umount", place], check=True)


# 1,797 digits take 1.4 MB; the episodes 2.6 MB; the results 0.8 MB and more.
BIG: dict[str, Arguments] = {
    "extract": ("extract", "--encoder", "pixels"),
    "sample": ("sample", "tiny.h5", "--query", "9", "--way", "6"),
    "score": ("score", "tiny.h5", "--query", "9", "--way", "6", "--shot", "1", "--episodes", "5000"),
}


@pytest.mark.parametrize(
    ("command", "kib"), [("extract", 8), ("extract", 300), ("sample", 40), ("sample", 300), ("score", 300)]
)
def test_a_full_disk_is_said_and_leaves_what_was_there(
    command: str, kib: int, desk: Path, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(kib)
    outcome = fsnl_process(*BIG[command], "--out", "disk/new.h5", cwd=desk)
    assert_refused(outcome, r"disk/new.h5: could not be written: No space left on device")
    assert tree(disk) == {"diary.txt": b"a diary\n"}


def test_a_full_disk_leaves_the_file_that_was_to_be_replaced(
    desk: Path, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(300)
    shutil.copy(desk / "tiny.h5", disk / "old.h5")
    before = tree(disk)
    outcome = fsnl_process("extract", "--encoder", "pixels", "--force", "--out", "disk/old.h5", cwd=desk)
    assert_refused(outcome, r"disk/old.h5: could not be written: No space left on device")
    assert tree(disk) == before


def test_output_that_nobody_can_take_is_an_error(desk: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    ended = run("bash", "-c", "fsnl-score tiny.h5 --query 2 --episodes 9 >/dev/full", cwd=desk)
    assert_refused(Outcome(ended.returncode, ended.stdout, ended.stderr), "No space left on device")


def test_a_reader_that_has_gone_is_no_traceback(desk: Path) -> None:
    ended = run("bash", "-c", "fsnl-score tiny.h5 --query 2 --episodes 9 | true", cwd=desk)
    assert "Traceback" not in ended.stderr


def test_no_command_replaces_a_file_that_it_reads(tiny_store: Path, tmp_path: Path) -> None:
    store = shutil.copy(tiny_store, tmp_path / "tiny.h5")
    vectors = tmp_path / "vectors.npy"
    np.save(vectors, np.ones((3, 4, 2), dtype=np.float32))
    results, other, code = (tmp_path / name for name in ("results.h5", "other.h5", "own.py"))
    page = tmp_path / "page.html"
    shutil.copy(tiny_store, other)
    done("score", store, "--way", "2", "--query", "2", "--episodes", "3", "--out", results)
    code.write_text("def scores(support, query): ...\n", encoding="utf-8")
    before = tree(tmp_path)
    for call in (
        ("score", store, "--out", store),
        ("score", store, "--classifier", f"python:{code}:scores", "--out", code),
        ("score", store, "--transform", f"center:{other}:test,l2", "--out", other),
        ("extract", "--encoder", f"python:{code}:net", "--out", code),
        ("extract", "--encoder", f"checkpoint:{code}", "--out", code),
        ("extract", "--encoder", "fsnl:conv4", "--weights", code, "--out", code),
        ("pretrain", "--dataset", "folder", "--classes", code, "--out", code),
        ("report", results, "--episodes-csv", results),
        ("sample", store, "--out", store),
        ("report", results, "--out", results),
        ("import", vectors, "--out", vectors),
    ):
        assert_refused(fsnl(*call, "--force"), "is read by this very call", code=2)
    both = ("report", results, "--out", page, "--episodes-csv", tmp_path / "." / page.name)
    assert_refused(fsnl(*both, "--force"), "is the page that --out names", code=2)
    assert tree(tmp_path) == before


def test_what_is_no_file_is_neither_read_nor_replaced(tiny_store: Path, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link.h5"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "nowhere.h5")
    score = ("score", tiny_store, "--query", "2", "--episodes", "3", "--force", "--out")
    assert_refused(fsnl(*score, pipe), "is no file but a device, pipe or socket")
    assert_refused(fsnl(*score, link), "is a link to a file that is not there")
    assert_refused(fsnl("score", pipe), "is a device, pipe or socket, needed a feature store")
    assert_refused(fsnl("report", pipe, "--out", tmp_path / "page.html"), "needed a result file")
    assert_refused(fsnl("compare", tmp_path / "pipe.csv"), "no such file")
    os.mkfifo(tmp_path / "pipe.csv")
    assert_refused(fsnl("compare", tmp_path / "pipe.csv"), "is a folder, device or pipe, needed a")
    assert pipe.is_fifo()
    assert link.is_symlink()
