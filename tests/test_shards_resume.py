"""Extraction that is interrupted anywhere and started again ends as one that was not."""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from checkout import environment
from commands import image_folder
from stores import header

from fsnl.cache.errors import HeldError, MismatchError
from fsnl.cache.fingerprint import header_identity
from fsnl.cache.reader import open_store
from fsnl.cache.shard_file import DamagedShardError, Shard
from fsnl.cache.shards import shard_folder
from fsnl.cache.verify import verify_store
from fsnl.pipeline.extract import ExtractRequest, Running, extract
from fsnl.pipeline.sharding import run

PROGRAM = Path(__file__).with_name("slow_extract.py")
CLASSES = {"hen": 33, "owl": 40, "tit": 28}
N_SHARDS = 26
RUNNING = Running(batch_size=2, shard_rows=4, workers=0)


def pixels_of(root: Path, *, image_size: int | None = None) -> ExtractRequest:
    return ExtractRequest(dataset="folder", root=root, encoder="pixels", image_size=image_size)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_folder(tmp_path_factory.mktemp("photos"), CLASSES)


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a run that nobody interrupted."""
    path = tmp_path_factory.mktemp("whole") / "whole.h5"
    return extract(pixels_of(photos), out=path, running=RUNNING)


def start(photos: Path, out: Path, *, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, str(PROGRAM), str(photos), str(out), str(seconds)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)


def assert_equal(path: Path, other: Path) -> None:
    """Two stores hold the same, bit for bit."""
    verify_store(path)
    one, two = open_store(path), open_store(other)
    assert one.fingerprints == two.fingerprints
    for split in one.splits:
        a, b = one.features(split), two.features(split)
        assert a.embeddings.tobytes() == b.embeddings.tobytes()
        np.testing.assert_array_equal(a.labels, b.labels)
        np.testing.assert_array_equal(a.image_digests, b.image_digests)
        assert (a.image_ids, a.class_names) == (b.image_ids, b.class_names)


@pytest.mark.slow
def test_killed_at_any_moment_and_started_again_it_ends_with_the_same_bits(
    photos: Path, whole: Path, tmp_path: Path
) -> None:
    out, rng = tmp_path / "store.h5", random.Random(0)
    for _ in range(4):
        # 51 batches are encoded in 0.2 s or more, and read again when the store is put together.
        for moment, seconds in (*[("encoding", 0.06)] * 3, *[("assembling", 0.15)] * 2):
            process = start(photos, out, seconds=0.004)
            assert process.stdout is not None
            assert f"{moment}\n" in process.stdout  # waits for that line
            time.sleep(rng.uniform(0, seconds))
            process.kill()
            process.communicate()
            assert process.returncode == -signal.SIGKILL
            assert not out.exists()
        extract(pixels_of(photos), out=out, running=RUNNING)
        assert_equal(out, whole)
        assert list(tmp_path.iterdir()) == [out], "nothing is left beside it"
        out.unlink()


def interrupted(photos: Path, out: Path, *, after: int) -> list[str]:
    """Leave a run of ours unfinished after so many images; what it said."""
    notes: list[str] = []

    def stop(split: str, done: int, total: int) -> None:
        if done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(
            pixels_of(photos),
            out=out,
            running=RUNNING,
            note=notes.append,
            progress=stop,
        )
    assert not out.exists()
    return notes


def test_it_says_what_it_found_and_loses_only_the_shard_in_work(
    photos: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "store.h5"
    interrupted(photos, out, after=11)
    assert len(list(shard_folder(out).path.glob("*.shard"))) == 2
    assert not list(shard_folder(out).path.glob("*.part"))
    notes = interrupted(photos, out, after=50)
    assert "resuming: 2 of 26 shards found, 8 of 101 images" in notes
    notes = []
    seen: list[int] = []
    extract(
        pixels_of(photos),
        out=out,
        running=RUNNING,
        note=notes.append,
        progress=lambda split, done, total: seen.append(done),
    )
    assert "resuming: 12 of 26 shards found, 48 of 101 images" in notes
    assert any(note.startswith("test: 53 images in ") for note in notes)
    assert seen == [*range(50, 101, 2), 101]
    assert_equal(out, whole)


def test_a_run_that_made_nothing_leaves_nothing(photos: Path, tmp_path: Path) -> None:
    interrupted(photos, tmp_path / "store.h5", after=2)
    assert list(tmp_path.iterdir()) == []


def test_a_shard_that_is_damaged_again_ends_the_run(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object, shards: Mapping[str, Sequence[Shard]], **__: object) -> None:
        raise DamagedShardError(tmp_path, "damaged shard: on purpose", shards["test"][1])

    monkeypatch.setattr(run, "assemble", damaged)
    notes: list[str] = []
    with pytest.raises(DamagedShardError, match="on purpose"):
        extract(pixels_of(photos), out=tmp_path / "store.h5", running=RUNNING, note=notes.append)
    assert sum("encoding it again" in note for note in notes) == 1


def test_a_damaged_shard_is_made_again(photos: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "store.h5"
    interrupted(photos, out, after=100)
    shards = sorted(shard_folder(out).path.glob("*.shard"))
    for shard, position in ((shards[0], 5), (shards[7], 20)):
        data = bytearray(shard.read_bytes())
        data[position] ^= 1
        shard.write_bytes(data)
    shards[3].write_bytes(b"")
    notes: list[str] = []
    extract(pixels_of(photos), out=out, running=RUNNING, note=notes.append)
    assert sum("damaged shard" in note and "encoding it again" in note for note in notes) == 3
    assert_equal(out, whole)
    assert list(tmp_path.iterdir()) == [out]


def test_another_batch_size_is_not_mixed_in(photos: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "store.h5"
    interrupted(photos, out, after=50)
    notes: list[str] = []
    other = Running(batch_size=5, workers=2)
    extract(pixels_of(photos), out=out, running=other, note=notes.append)
    assert "batch size 2, as this store was begun" in notes
    assert open_store(out).header.environment["batch_size"] == 2
    assert_equal(out, whole)


def test_shards_of_something_else_are_refused_field_by_field_and_discarded_by_force(
    photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "store.h5"
    interrupted(photos, out, after=50)
    request = pixels_of(photos, image_size=2)
    with pytest.raises(MismatchError, match=r"crop is 4, asked 2; .*resize is 4, asked 2; use another --out"):
        extract(request, out=out)
    assert len(list(shard_folder(out).path.glob("*.shard"))) == 12
    notes: list[str] = []
    extract(request, out=out, force=True, note=notes.append)
    assert not any("resuming" in note for note in notes)
    assert open_store(out).features().embeddings.shape == (101, 12)
    assert list(tmp_path.iterdir()) == [out]


def test_shards_begun_on_another_kind_of_device_are_refused(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "store.h5"
    interrupted(photos, out, after=50)
    plan = shard_folder(out).path / "plan.json"
    plan.write_text(plan.read_text().replace('"device": "cpu",\n "env', '"device": "cuda",\n "env'))
    with pytest.raises(MismatchError, match=r"device is cuda, asked cpu; use another --out, or --force"):
        extract(pixels_of(photos), out=out, running=RUNNING)


def test_another_environment_is_told_and_recorded(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "store.h5"
    interrupted(photos, out, after=50)
    plan = shard_folder(out).path / "plan.json"
    plan.write_text(plan.read_text().replace(f'"numpy": "{np.__version__}"', '"numpy": "1.0"'))
    notes: list[str] = []
    extract(pixels_of(photos), out=out, running=RUNNING, note=notes.append)
    warning = f"warning: begun with numpy 1.0, now {np.__version__}: last digits may differ"
    assert warning in notes
    assert open_store(out).header.environment["numpy"] == f"1.0, {np.__version__}"


def test_a_forced_run_goes_on_with_what_a_forced_one_left_and_with_nothing_else(
    photos: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "store.h5"
    shutil.copy(whole, out)
    for found in (False, True):
        notes: list[str] = []

        def stop(split: str, done: int, total: int) -> None:
            if done >= 60:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            extract(
                pixels_of(photos),
                out=out,
                force=True,
                running=RUNNING,
                note=notes.append,
                progress=stop,
            )
        assert any(note.startswith("resuming: 14 of 26") for note in notes) == found
        assert out.read_bytes() == whole.read_bytes(), "the old one stays until the new one is whole"
    old = out.stat().st_ino
    extract(pixels_of(photos), out=out, force=True, running=RUNNING)
    assert_equal(out, whole)
    assert out.stat().st_ino != old, "another file, though made within the same second its bytes are equal"


def test_an_image_that_changed_between_two_runs_costs_its_shard_alone(photos: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(photos, tmp_path / "photos"))
    out = tmp_path / "store.h5"
    interrupted(copy, out, after=100)
    image = copy / "hen" / "005.png"
    image.write_bytes(image.read_bytes() + b"\0")  # another size
    notes: list[str] = []
    extract(pixels_of(copy), out=out, running=RUNNING, note=notes.append)
    assert "resuming: 23 of 26 shards found, 92 of 101 images" in notes


def test_a_second_run_on_the_same_store_stops_and_says_who_writes_it(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "store.h5"
    process = start(photos, out, seconds=0.5)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "encoding\n":
                break
        with pytest.raises(HeldError, match=rf"store.h5: is being written by process {process.pid} on "):
            extract(pixels_of(photos), out=out)
    finally:
        process.kill()
        process.communicate()
    extract(pixels_of(photos), out=out)


def test_the_identity_of_a_header_leaves_out_what_changes_no_embedding() -> None:
    identity = header_identity(header())
    assert set(identity) == {"format_version", "dataset", "encoder", "preprocessing"}
    assert "labels_used" not in str(identity)


def test_a_store_that_has_all_by_other_words_is_complete_and_nothing_is_loaded(
    photos: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_now(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("fsnl.pipeline.extract.load_encoder", not_now)
    notes: list[str] = []
    request = pixels_of(photos, image_size=4)  # which is the images' own
    extract(request, out=whole, note=notes.append)
    assert notes == [f"{whole} is complete: test extracted before"]
