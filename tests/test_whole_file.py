"""Small files are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from fsnl.cache.errors import OccupiedError, WriteError
from fsnl.cache.whole_file import remove_leftovers, write_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("data", [b"", b"\x00\xff\r\n", bytes(range(256)) * 5000])
def test_the_file_has_every_byte_and_nothing_lies_beside_it(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    write_whole(path, data, overwrite=False)
    assert path.read_bytes() == data
    assert names(tmp_path) == ["file.pt"]


def test_it_has_the_mode_of_any_new_file_of_the_user(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"1", overwrite=False)
        assert os.umask(0o027) == 0o027, "the umask stays as it was"
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_what_lies_there_is_replaced_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a much longer text than the new one")
    with pytest.raises(OccupiedError, match=r"file: exists already; use another --out, or --force"):
        write_whole(path, b"new", overwrite=False)
    assert path.read_bytes().startswith(b"a much")
    write_whole(path, b"new", overwrite=True)
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_is_never_replaced(overwrite: bool, tmp_path: Path) -> None:
    with pytest.raises(OccupiedError, match="is a folder; name a file"):
        write_whole(tmp_path, b"1", overwrite=overwrite)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"there is no folder .*nowhere; make it first"):
        write_whole(tmp_path / "nowhere" / "file", b"1", overwrite=False)
    assert names(tmp_path) == []


def test_a_folder_that_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    try:
        if os.access(closed, os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.raises(WriteError, match=r"no permission to write in .*closed"):
            write_whole(closed / "file", b"1", overwrite=True)
    finally:
        closed.chmod(0o700)


def test_a_disk_without_space_leaves_what_was_there_and_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    opened: list[int] = []

    def full(handle: int) -> None:
        opened.append(handle)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="file: could not be written: No space left on device"):
        write_whole(path, b"new", overwrite=True)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]
    with pytest.raises(OSError, match="Bad file descriptor"):  # it was closed
        os.fstat(opened[0])


def test_an_interruption_while_it_is_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new", overwrite=True)
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["file"])


@pytest.mark.parametrize("letter", ["a", "é", "漢", "🦉"])
def test_a_name_as_long_as_a_file_system_takes_is_taken(letter: str, tmp_path: Path) -> None:
    path = tmp_path / (letter * (255 // len(letter.encode())))
    write_whole(path, b"1", overwrite=False)
    assert names(tmp_path) == [path.name]


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="could not be written: File name too long"):
        write_whole(tmp_path / ("a" * 300), b"1", overwrite=False)


def test_what_killed_writers_of_this_very_file_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "net[1].pt"
    (tmp_path / ".net[1].pt.ab_12xyz.part").touch()
    others = [".net[1].pt.lock", ".net1.pt.ab_12xyz.part", "net[1].pt.ab_12xyz.part", ".net[1].pt.x.part"]
    for name in others:
        (tmp_path / name).touch()
    remove_leftovers(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(others)
    remove_leftovers(tmp_path / "nowhere" / "net.pt")
