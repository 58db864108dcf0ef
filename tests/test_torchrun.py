"""Several processes, as torchrun starts them: the same bits whatever their number, and after one dies."""

import subprocess
import sys
from pathlib import Path

import pytest
from checkout import environment, run
from commands import image_folder

from fsnl.cache.errors import FsnlError
from fsnl.cache.reader import open_store
from fsnl.cache.shards import shard_folder
from fsnl.cache.verify import verify_store
from fsnl.pipeline.extract import ExtractRequest, Running, extract
from fsnl.pipeline.sharding import signs
from fsnl.pipeline.sharding.ranks import Rank, this_rank

PROGRAM = Path(__file__).with_name("slow_extract.py")
RUNNING = Running(batch_size=2, shard_rows=4, workers=0)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_folder(tmp_path_factory.mktemp("photos"), {"hen": 13, "owl": 10, "tit": 18})


def torchrun(n: int, *program: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Start the program as n processes on this host."""
    starter = Path(sys.executable).with_name("torchrun")
    if not starter.exists():
        pytest.skip("torch is installed without torchrun")
    command = [starter, "--standalone", "--nproc-per-node", str(n), *program]
    return subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=300)


def arrays(path: Path) -> dict[str, bytes]:
    verify_store(path)
    features = open_store(path).features()
    names = ("embeddings", "labels", "image_digests")
    return {
        **{name: getattr(features, name).tobytes() for name in names},
        "ids": "\0".join(features.image_ids).encode(),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("network", "counts"), [((), (1, 3)), (("torchvision:squeezenet1_1",), (2,))])
def test_any_number_of_processes_gives_the_same_bits(
    network: tuple[str, ...], counts: tuple[int, ...], photos: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone.h5"
    done = run(sys.executable, PROGRAM, photos, alone, "0", *network, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for n in counts:
        out = tmp_path / f"{n}.h5"
        done = torchrun(n, PROGRAM, photos, out, "0.01", *network)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("encoding\n") == n, "each has a part"
        assert done.stdout.count("test: 3 classes, 41 images") == 1, "one of them speaks"
        assert arrays(out) == arrays(alone)
        assert not shard_folder(out).path.exists()


@pytest.mark.slow
def test_the_command_runs_under_torchrun_and_prints_the_path_once(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    arguments = ("--dataset", "folder", "--root", photos, "--encoder", "pixels", "--out", out)
    done = torchrun(2, "--no-python", Path(sys.executable).with_name("fsnl-extract"), *arguments)
    assert (done.returncode, done.stdout) == (0, f"{out}\n"), done.stderr
    assert len(open_store(out).features().labels) == 41


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_job_and_the_same_command_goes_on(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "store.h5"
    done = torchrun(2, PROGRAM, photos, out, "0.05", FAIL_RANK="1")
    assert done.returncode != 0
    assert "rank      : 1 (local_rank: 1)\n  exitcode  : -9" in done.stderr
    assert not out.exists()
    done = torchrun(2, PROGRAM, photos, out, "0")
    assert done.returncode == 0, done.stderr
    request = ExtractRequest(dataset="folder", root=photos, encoder="pixels")
    whole = extract(request, out=tmp_path / "w.h5", running=RUNNING)
    assert arrays(out) == arrays(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.h5", "w.h5"]


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, *, world_size: int = 2, port: int = 29500) -> None:
    for name, value in {"RANK": rank, "WORLD_SIZE": world_size, "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))


def test_rank_0_gives_up_on_a_rank_that_does_not_come_and_keeps_what_it_made(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, request = tmp_path / "store.h5", ExtractRequest(dataset="folder", root=photos, encoder="pixels")
    monkeypatch.setattr(signs, "START_SECONDS", 0.1)
    as_rank(monkeypatch, 0)
    with pytest.raises(
        FsnlError, match=r"rank 1 has given no sign of life for 0 s; 5 shards are missing: run"
    ):
        extract(request, out=out, running=RUNNING)
    monkeypatch.delenv("RANK")
    notes: list[str] = []
    extract(request, out=out, running=RUNNING, note=notes.append)
    assert "resuming: 6 of 11 shards found, 21 of 41 images" in notes


def test_another_rank_finds_a_complete_store_and_does_nothing(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, request = tmp_path / "store.h5", ExtractRequest(dataset="folder", root=photos, encoder="pixels")
    extract(request, out=out, running=RUNNING)
    before = out.read_bytes()
    as_rank(monkeypatch, 1)
    notes: list[str] = []
    assert extract(request, out=out, note=notes.append) == out
    assert (out.read_bytes(), notes) == (before, [])


def test_a_shard_is_the_same_whoever_encodes_it(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rank 0 of two, then rank 0 of three over what is left, then alone: no coordination can be assumed.
    out, request = tmp_path / "store.h5", ExtractRequest(dataset="folder", root=photos, encoder="pixels")
    monkeypatch.setattr(signs, "START_SECONDS", 0.05)
    for world_size in (2, 3):
        as_rank(monkeypatch, 0, world_size=world_size)
        with pytest.raises(FsnlError, match="no sign of life"):
            extract(request, out=out, running=RUNNING)
    monkeypatch.delenv("RANK")
    extract(request, out=out, running=RUNNING)
    whole = extract(request, out=tmp_path / "whole.h5", running=RUNNING)
    assert arrays(out) == arrays(whole)


def test_the_rank_is_read_from_the_environment() -> None:
    assert this_rank({}) == this_rank({"RANK": "1"}) == Rank(0, 1)
    found = this_rank({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a"})
    assert (found.rank, found.world_size, found.n_local, found.job) == (3, 4, 2, "a")
    assert not found.leads
    for rank, size in (("4", "4"), ("-1", "2"), ("a", "2"), ("0", "")):
        with pytest.raises(FsnlError, match=rf"RANK={rank} and WORLD_SIZE={size}, needed 0 <= RANK"):
            this_rank({"RANK": rank, "WORLD_SIZE": size})


@pytest.mark.parametrize(
    ("device", "expected"), [("auto", "cuda:1"), ("cuda", "cuda:1"), ("cuda:0", "cuda:0")]
)
def test_each_rank_of_a_host_has_a_gpu_of_its_own(
    device: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from fsnl.pipeline.encoders import network

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "3")  # the second of two, again
    assert str(network.choose_device(device)) == expected
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert str(network.choose_device("auto")) in ("cpu", "mps")


def test_the_copy_of_a_plan_of_an_earlier_job_is_not_taken_for_this_ones(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, request = tmp_path / "store.h5", ExtractRequest(dataset="folder", root=photos, encoder="pixels")
    monkeypatch.setattr(signs, "START_SECONDS", 0.05)
    as_rank(monkeypatch, 0, port=1)
    with pytest.raises(FsnlError, match="no sign of life"):
        extract(request, out=out, running=RUNNING)
    from fsnl.pipeline.sharding import run as sharding_run

    monkeypatch.setattr(sharding_run, "START_SECONDS", 0.05)
    as_rank(monkeypatch, 1, port=2)  # of another job, whose rank 0 is not there
    with pytest.raises(FsnlError, match=r"rank 1 has waited for 0 s for rank 0"):
        extract(request, out=out, running=RUNNING)
    assert len(list(shard_folder(out).path.glob("*.shard"))) == 6
