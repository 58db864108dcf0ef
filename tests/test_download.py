"""`--download` against a server on this machine that has a small archive, or something else, or nothing."""

import hashlib
import io
import pickle
import socket
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from checkout import run
from click.testing import CliRunner
from layouts import read

from fsnl.cache.errors import DatasetError
from fsnl.cache.reader import open_store
from fsnl.pipeline.cli.extract import main
from fsnl.pipeline.datasets.benchmarks import BENCHMARKS
from fsnl.pipeline.datasets.download import download
from fsnl.pipeline.datasets.part_folder import part_folder

torchvision_datasets = pytest.importorskip("torchvision.datasets")


def archive() -> bytes:
    """CIFAR-100 as published, of two invented images of every class."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as file:
        for seed, part in enumerate(("train", "test", "meta")):
            pixels = np.random.default_rng(seed).integers(0, 256, (100, 3072), dtype=np.uint8)
            held = {"data": pixels, "fine_labels": list(range(100)), "filenames": [f"{part}.png"] * 100}
            body = pickle.dumps(held if part != "meta" else {}, protocol=2)
            member = tarfile.TarInfo(f"cifar-100-python/{part}")
            member.size = len(body)
            file.addfile(member, io.BytesIO(body))
        outside = tarfile.TarInfo("../outside")
        outside.size = 1
        file.addfile(outside, io.BytesIO(b"x"))
    return content.getvalue()


ARCHIVE = archive()


@dataclass
class Site:
    """What the server answers.

    Attributes:
        body: of the answer.
        status: of the answer.
        promised: bytes that it says will come, None for as many as do.
        asked: paths that were asked for.
    """

    body: bytes = ARCHIVE
    status: int = 200
    promised: int | None = None
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server on this machine that torchvision takes for the publisher's."""
    answers = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append(self.path)
            self.send_response(answers.status)
            length = len(answers.body) if answers.promised is None else answers.promised
            self.send_header("Content-Length", str(length))
            self.end_headers()
            try:
                self.wfile.write(answers.body)
            except OSError:  # whoever asked has gone
                pass

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    cifar100 = torchvision_datasets.CIFAR100
    monkeypatch.setattr(cifar100, "url", f"http://127.0.0.1:{server.server_port}/cifar-100-python.tar.gz")
    monkeypatch.setattr(cifar100, "tgz_md5", hashlib.md5(ARCHIVE).hexdigest())
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield answers
    server.shutdown()
    server.server_close()
    thread.join()


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def fails_and_then_completes(root: Path, site: Site, match: str) -> None:
    """The first try leaves nothing; with the server in order the second has the data set."""
    with pytest.raises(DatasetError, match=match) as caught:
        download("cifar-fs", root=root, split="test")
    assert "\n" not in str(caught.value)
    assert "nothing was kept; run it again" in str(caught.value)
    assert list(root.iterdir()) == []
    site.body, site.status, site.promised = ARCHIVE, 200, None
    download("cifar-fs", root=root, split="test")
    assert read("cifar-fs", root).listing.class_names == BENCHMARKS["cifar-fs"].classes["test"]


def test_it_is_fetched_unpacked_and_read(site: Site, tmp_path: Path) -> None:
    root = tmp_path / "new" / "folder"
    download("cifar-fs", root=root, split="test")
    assert files(root) == [f"cifar-100-python/{part}" for part in ("meta", "test", "train")]
    assert not (tmp_path / "new" / "outside").exists()
    images = read("cifar-fs", root)
    assert images.listing.image_ids[:2] == ("baby/test.png", "baby/train.png")


def test_what_is_there_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    download("cifar-fs", root=tmp_path, split="test")
    asked = len(site.asked)
    download("cifar-fs", root=tmp_path, split="train")
    download("fc100", root=tmp_path / "cifar-100-python", split="val")
    assert len(site.asked) == asked


def test_another_hash_is_refused(site: Site, tmp_path: Path) -> None:
    site.body = archive()[:-8] + b"00000000"
    fails_and_then_completes(tmp_path, site, "is not the published archive: its hash is another")


def test_a_page_in_its_place_is_refused(site: Site, tmp_path: Path) -> None:
    site.body = b"<html>Please log in</html>"
    fails_and_then_completes(tmp_path, site, "the server sent an HTML page instead of the archive")


def test_an_interrupted_download_is_refused(site: Site, tmp_path: Path) -> None:
    site.body, site.promised = ARCHIVE[: len(ARCHIVE) // 2], len(ARCHIVE)
    fails_and_then_completes(tmp_path, site, "cut short after|the connection broke")


@pytest.mark.parametrize(("status", "reason"), [(404, "Not Found"), (503, "Service Unavailable")])
def test_what_the_server_answers_is_told(status: int, reason: str, site: Site, tmp_path: Path) -> None:
    site.body, site.status = b"", status
    fails_and_then_completes(tmp_path, site, f"the server answers {status} {reason}")


def test_no_network_is_told(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:

        def lookup(*args: object, **options: object) -> None:
            raise socket.gaierror(-3, "Temporary failure in name resolution")

        without.setattr(socket, "getaddrinfo", lookup)
        with pytest.raises(
            DatasetError, match="cannot be reached: Temporary failure in name resolution; is there"
        ):
            download("fc100", root=tmp_path, split="test")
    assert list(tmp_path.iterdir()) == []
    download("fc100", root=tmp_path, split="test")


def test_a_server_that_is_not_there_is_told(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(
            torchvision_datasets.CIFAR100, "url", f"http://127.0.0.1:{free.getsockname()[1]}/a.tar.gz"
        )
    with pytest.raises(DatasetError, match="cannot be reached: Connection refused; is there a network"):
        download("fc100", root=tmp_path, split="test")


def test_being_stopped_leaves_nothing(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fsnl.pipeline.datasets.download._unpack", stopped)
    with pytest.raises(KeyboardInterrupt):
        download("fc100", root=tmp_path, split="test")
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from fsnl.pipeline.datasets.part_folder import part_folder

with part_folder(Path(sys.argv[1]), name="cifar-100-python") as folder:
    (folder / "cifar-100-python.tar.gz").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no locks that end with their process")
def test_the_next_download_removes_what_a_killed_one_left(site: Site, tmp_path: Path) -> None:
    assert run(sys.executable, "-c", KILLED, tmp_path, cwd=tmp_path).returncode == -9
    (left,) = tmp_path.iterdir()
    assert (left / "cifar-100-python.tar.gz").read_bytes() == b"half"
    download("cifar-fs", root=tmp_path, split="test")
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-100-python"]


def test_a_download_leaves_alone_the_folder_of_one_that_goes_on(site: Site, tmp_path: Path) -> None:
    with part_folder(tmp_path, name="cifar-100-python") as other:
        download("cifar-fs", root=tmp_path, split="test")
        assert files(other) == ["lock"]
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-100-python"]


def test_of_several_processes_one_downloads_and_the_others_wait(site: Site, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(download, "cifar-fs", root=tmp_path, split="test", leads=False)
        with pytest.raises(TimeoutError):
            waits.result(timeout=0.3)
        assert site.asked == []
        download("cifar-fs", root=tmp_path, split="test")
        asked = list(site.asked)
        waits.result(timeout=60)
    assert site.asked == asked


def test_the_command_waits_for_rank_0_to_download(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsnl.pipeline.datasets.download.WAIT_SECONDS", 0.0)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    arguments = ["--dataset", "fc100", "--download", "--root", str(tmp_path), "--encoder", "pixels"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "fc100 has not come in the 0 s since rank 0 was to download it there; name a" in done.output
    assert site.asked == []


def test_a_root_that_cannot_be_written_is_told(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a")
    with pytest.raises(DatasetError, match=r"deeper: cannot be written: .*; name another --root"):
        download("fc100", root=tmp_path / "file" / "deeper", split="test")
    (tmp_path / "cifar-100-python").mkdir()
    with pytest.raises(DatasetError, match="is there, but holds neither train nor test; remove it"):
        download("fc100", root=tmp_path, split="test")
    assert site.asked == []


@pytest.mark.parametrize("name", ["miniimagenet", "folder", "digits"])
def test_what_has_no_publisher_to_get_it_from_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=f"--download gets cifar-fs and fc100; get {name} by other means"):
        download(name, root=tmp_path, split="test")


def test_the_command_puts_it_in_the_home_folder_and_finds_it_there(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("FSNL_HOME", str(home))
    before = CliRunner().invoke(main, ["--dataset", "fc100", "--encoder", "pixels"])
    assert (
        before.exit_code,
        "needs --root, the folder that holds its images, or --download" in before.output,
    ) == (
        1,
        True,
    )
    first = CliRunner().invoke(main, ["--dataset", "fc100", "--download", "--encoder", "pixels"])
    assert first.exit_code == 0, first.output
    assert (home / "data" / "cifar-100-python" / "train").is_file()
    store = open_store(Path(first.output.strip().split("\n")[-1]))
    assert store.features("test").class_names == BENCHMARKS["fc100"].classes["test"]
    # Again, and without --download: the same store, nothing to do.
    again = CliRunner().invoke(main, ["--dataset", "fc100", "--encoder", "pixels"])
    assert again.output.strip().split("\n")[-1] == str(store.path)
    assert "is complete" in again.output
