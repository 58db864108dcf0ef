"""Shards, and the lock of their folder: whole or not there, found by what they are made of, held by one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from checkout import environment
from stores import even_labels, header, listing

from fsnl.cache import holder
from fsnl.cache.arrays import F32, U64
from fsnl.cache.errors import HeldError, WriteError
from fsnl.cache.fingerprint import header_identity
from fsnl.cache.holder import Holder, held, this_process
from fsnl.cache.schema import Listing
from fsnl.cache.shard_file import DamagedShardError
from fsnl.cache.shards import ShardFolder, ShardPlan, shard_folder, split_shards

PLAN = ShardPlan(
    header=header_identity(header()),
    batch_size=2,
    rows_per_shard=4,
    device="cpu",
    environment={"device": "cpu", "torch": None, "batch_size": 2},
    replaces=False,
    job="here:1",
)
ROWS = listing(even_labels(n_classes=5, n_per_class=2))
EMBEDDINGS = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
EMBEDDINGS[2, 1] = np.nan
DIGESTS = np.random.default_rng(1).integers(2**64, size=10, dtype=np.uint64)


def batches(rows: range, *, size: int = 2) -> Iterator[tuple[F32, U64]]:
    for first in range(rows.start, rows.stop, size):
        part = slice(first, min(first + size, rows.stop))
        yield EMBEDDINGS[part], DIGESTS[part]


@pytest.fixture
def folder(tmp_path: Path) -> ShardFolder:
    made = shard_folder(tmp_path / "store.h5")
    made.make()
    return made


def names(folder: ShardFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def test_shards_cover_the_rows_in_order() -> None:
    assert [shard.rows for shard in split_shards(PLAN, ROWS)] == [range(4), range(4, 8), range(8, 10)]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_what_is_written_to_a_shard_is_read_again(folder: ShardFolder, batch_size: int) -> None:
    shards = split_shards(PLAN, ROWS)
    assert folder.missing(shards) == shards
    for shard in reversed(shards):
        folder.write(shard, batches(shard.rows), remarks=lambda: [9, 1, 1, 5])
    assert folder.missing(shards) == []
    read = [batch for shard in shards for batch in folder.read(shard, batch_size=batch_size)]
    assert np.concatenate([part[0] for part in read]).tobytes() == EMBEDDINGS.tobytes()
    assert np.concatenate([part[1] for part in read]).tobytes() == DIGESTS.tobytes()
    assert [folder.remarks(shard) for shard in shards] == [[1], [5], [9]]


def test_a_shard_is_found_by_what_decides_its_embeddings_and_by_nothing_else() -> None:
    def shard_names(plan: ShardPlan = PLAN, rows: Listing = ROWS) -> list[str]:
        return [shard.name for shard in split_shards(plan, rows)]

    before = shard_names()
    assert len(set(before)) == 3
    assert shard_names(replace(PLAN, environment={}, replaces=True, job="there")) == before
    ids, sizes = list(ROWS.image_ids), ROWS.source_sizes.copy()
    ids[5] += "x"
    sizes[5] += 1
    # Of an image that changed, only its shard is another.
    for changed in (replace(ROWS, image_ids=tuple(ids)), replace(ROWS, source_sizes=sizes)):
        after = shard_names(rows=changed)
        assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
    renamed = replace(ROWS, class_names=(*ROWS.class_names[:4], "z"))
    assert [a == b for a, b in zip(before, shard_names(rows=renamed), strict=True)] == [True, True, False]
    for others in (
        shard_names(rows=replace(ROWS, split="train")),
        shard_names(replace(PLAN, batch_size=4)),
        shard_names(replace(PLAN, device="cuda")),
        shard_names(replace(PLAN, header=header_identity(header(encoder="other")))),
    ):
        assert not set(before) & set(others)


def test_nothing_is_there_before_a_shard_is_whole(folder: ShardFolder) -> None:
    shard = split_shards(PLAN, ROWS)[0]

    def broken() -> Iterator[tuple[F32, U64]]:
        yield from batches(range(2))
        assert names(folder) == [f"{shard.name}.0.part"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.write(shard, broken())
    with pytest.raises(ValueError, match="the batches hold 2 rows, the shard 4"):
        folder.write(shard, batches(range(2)))
    assert names(folder) == []


def test_damage_of_a_shard_is_seen_wherever_it_is(folder: ShardFolder) -> None:
    shard = split_shards(PLAN, ROWS)[0]
    folder.write(shard, batches(shard.rows))
    path = folder.path / f"{shard.name}.shard"
    whole = path.read_bytes()
    n_bytes = 4 * (3 * 4 + 8)  # before the text
    spoiled = [whole[:size] for size in range(len(whole))]
    spoiled += [
        whole[:position] + bytes([whole[position] ^ 0x20]) + whole[position + 1 :]
        for position in (*range(n_bytes), *range(len(whole) - 16, len(whole)))
    ]
    spoiled.append(whole.replace(shard.name.encode(), shard.name[::-1].encode()))
    for data in spoiled:
        path.write_bytes(data)
        with pytest.raises(DamagedShardError, match=r"\.shard: damaged shard: ") as caught:
            list(folder.read(shard, batch_size=2))
        assert caught.value.shard == shard


def test_a_plan_is_read_again_and_one_that_is_spoiled_or_of_another_version_is_none(
    folder: ShardFolder,
) -> None:
    assert folder.read_plan() is None
    folder.write_plan(PLAN)
    read = folder.read_plan()
    assert read is not None
    assert split_shards(read, ROWS) == split_shards(PLAN, ROWS)
    assert (read.job, read.environment) == (PLAN.job, PLAN.environment)
    file = folder.path / "plan.json"
    for text in ("", "[]", "{", file.read_text().replace('"version": 1', '"version": 2')):
        file.write_text(text)
        assert folder.read_plan() is None


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "store.h5.shards").write_text("a diary")
    with pytest.raises(WriteError, match=r"store.h5: .*store.h5.shards is no folder, .* move it away"):
        shard_folder(tmp_path / "store.h5").make()


@pytest.mark.parametrize("name", ["n" * 255, "字" * 85])
def test_the_longest_names_have_a_folder_too(name: str, tmp_path: Path) -> None:
    folder = shard_folder(tmp_path / name)
    folder.make()
    folder.remove_if_empty()
    assert not folder.path.exists()


HOLD = """
import sys, time
from pathlib import Path
from fsnl.cache.holder import held, this_process
with held(Path(sys.argv[1]), this_process(), target=Path("store.h5")):
    print("held", flush=True)
    if sys.argv[2:]:
        import os
        if os.fork() == 0:  # as loaders' workers do, which outlive their parent
            time.sleep(20)
            os._exit(0)
    time.sleep(20)
"""


def other_process(lock: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(lock), *arguments]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_run_is_told_who_holds_the_store(folder: ShardFolder) -> None:
    other = other_process(folder.lock)
    try:
        host = socket.gethostname()
        who = rf"store.h5: is being written by process {other.pid} on {host} since 20\d\d-.*; wait"
        for take_over in (False, True):  # a holder that is alive is not pushed aside
            with (
                pytest.raises(HeldError, match=who),
                held(folder.lock, this_process(), target=Path("store.h5"), take_over=take_over),
            ):
                pass
    finally:
        other.kill()
        other.communicate()
    with held(folder.lock, this_process(), target=Path("store.h5")):
        assert json.loads(folder.lock.read_text())["pid"] == os.getpid()
    assert names(folder) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_a_dead_holder_does_not_block_even_where_its_child_lives(folder: ShardFolder) -> None:
    other = other_process(folder.lock, "fork")
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    with held(folder.lock, this_process(), target=Path("store.h5")):
        pass
    assert other.stdout is not None
    other.stdout.close()


def test_a_holder_on_another_host_stands_until_it_is_overridden(folder: ShardFolder) -> None:
    folder.lock.write_text(json.dumps({"host": "elsewhere", "pid": 7, "since": "2026-01-01", "job": ""}))
    stamp = time.time() - 3600
    os.utime(folder.lock, (stamp, stamp))
    match = "process 7 on elsewhere since 2026-01-01, last sign of life 3,600 s ago; .* --take-over"
    with pytest.raises(HeldError, match=match), held(folder.lock, this_process(), target=Path("store.h5")):
        pass
    with held(folder.lock, this_process(), target=Path("store.h5"), take_over=True):
        pass
    assert names(folder) == []


def test_without_locks_of_the_system_a_sign_of_life_stands_for_one(
    folder: ShardFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "_lock", lambda file: None)
    record = json.dumps({"host": socket.gethostname(), "pid": 7, "since": "2026-01-01", "job": ""})
    folder.lock.write_text(record)
    with (
        pytest.raises(HeldError, match=r"process 7 .* last sign of life 0 s ago"),
        held(folder.lock, this_process(), target=Path("store.h5")),
    ):
        pass
    stamp = time.time() - holder.ALIVE_SECONDS - 1
    os.utime(folder.lock, (stamp, stamp))
    with held(folder.lock, this_process(), target=Path("store.h5")):
        pass


def test_a_process_cannot_hold_a_store_twice(folder: ShardFolder) -> None:
    with (
        held(folder.lock, this_process(), target=Path("store.h5")),
        pytest.raises(HeldError, match="by this very process"),
        held(folder.lock, this_process(), target=Path("store.h5")),
    ):
        pass


def test_a_holder_gives_signs_of_life(folder: ShardFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "HEARTBEAT_SECONDS", 0.01)
    with held(folder.lock, this_process(), target=Path("store.h5")):
        os.utime(folder.lock, (0, 0))
        for _ in range(1000):
            if folder.lock.stat().st_mtime > 0:
                break
            time.sleep(0.01)
        assert folder.lock.stat().st_mtime > 0


def test_records_that_are_spoiled_are_nobody(folder: ShardFolder) -> None:
    assert holder.read_holder(folder.lock) is None
    for text in ("", "{}", "[1]", '{"host": "x"}'):
        folder.lock.write_text(text)
        assert holder.read_holder(folder.lock) is None
        with held(folder.lock, Holder("here", 1, "now"), target=Path("store.h5")):
            pass
