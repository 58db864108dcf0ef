"""A disk that fills while images are encoded, or while the store is put together."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Outcome, fsnl_process

from fsnl.cache.reader import open_store
from fsnl.cache.verify import verify_store


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own at tmp_path/disk, made and sized by `resize`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs a file system of its own to fill, and may not mount one here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def resize(disk: Path, kib: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kib}k", disk], check=True)


def extract_digits(disk: Path) -> Outcome:
    return fsnl_process("extract", "--encoder", "pixels", "--out", "disk/digits.h5", cwd=disk.parent)


def assert_full(outcome: Outcome, disk: Path, *, n_shards: int) -> None:
    """One line, exit code 1, and nothing beside the shards that are whole."""
    assert (outcome.code, outcome.stdout) == (1, ""), outcome.stderr
    assert outcome.reason == "Error: disk/digits.h5: could not be written: No space left on device"
    assert outcome.stderr.count("rror") == 1
    left = sorted(path.suffix or path.name for path in disk.rglob("*"))
    assert left == sorted([".shard"] * n_shards + [".json", ".shards"])


@pytest.mark.parametrize(
    ("kib", "n_shards"),
    [(1000, 2), (2000, 4)],  # 1,797 digits are four shards, 1.4 MB, and then a file of 1.4 MB
    ids=["encoding", "assembling"],
)
def test_after_space_is_made_it_goes_on(kib: int, n_shards: int, disk: Path) -> None:
    resize(disk, kib)
    assert_full(extract_digits(disk), disk, n_shards=n_shards)
    assert_full(extract_digits(disk), disk, n_shards=n_shards)
    resize(disk, 8000)
    outcome = extract_digits(disk)
    assert (outcome.code, outcome.stdout) == (0, "disk/digits.h5\n")
    assert f"resuming: {n_shards} of 4 shards found" in outcome.stderr
    assert [path.name for path in disk.iterdir()] == ["digits.h5"]
    verify_store(disk / "digits.h5")
    assert len(open_store(disk / "digits.h5").features().labels) == 1797
