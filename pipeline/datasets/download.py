"""CIFAR-100 from its publisher, through torchvision and its hash check; it appears when it is whole."""

import contextlib
import gzip
import io
import shutil
import sys
import tarfile
import time
import zlib
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError

from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.cifar100 import ARCHIVE, FOLDER, PARTS
from fsnl.pipeline.datasets.guess import kind_of_file
from fsnl.pipeline.datasets.names import printable
from fsnl.pipeline.datasets.part_folder import part_folder
from fsnl.pipeline.datasets.registry import DOWNLOADABLE, lies_there

_MEMBERS = (*PARTS, "meta")

# How long processes wait for the one that downloads, and how often they look.
WAIT_SECONDS, _POLL_SECONDS = 1800.0, 0.2


def download(name: str, *, root: Path, split: str, leads: bool = True) -> None:
    """Have a data set at a root: returns at once where it lies there already, in whatever layout.

    Args:
        name: of the data set.
        root: where it is, or goes.
        split: the split that is wanted.
        leads: whether this process, of several that want the same, gets it; others wait until it is there.

    Raises:
        DatasetError: one that has no publisher to get it from, one that was waited for and did not come, or
            as `download_cifar100`.
    """
    if name not in DOWNLOADABLE:
        msg = (
            f"--download gets {' and '.join(DOWNLOADABLE)}; get {name} by other means and name it with --root"
        )
        raise DatasetError(msg)
    if not leads:
        _await(name, root=root, split=split)
    elif not lies_there(name, root, split):
        download_cifar100(root)


def _await(name: str, *, root: Path, split: str) -> None:
    """Wait until another process has put a data set at a root."""
    began = time.monotonic()
    while not lies_there(name, root, split):
        if time.monotonic() - began > WAIT_SECONDS:
            msg = (
                f"{printable(root)}: {name} has not come in the {WAIT_SECONDS:.0f} s since rank 0 was to "
                "download it there; name a --root that all machines share"
            )
            raise DatasetError(msg)
        time.sleep(_POLL_SECONDS)


def download_cifar100(root: Path) -> None:
    """Have ROOT/cifar-100-python, of about 180 MB; returns at once where it is there already.

    The archive goes to a hidden folder in ROOT, is compared with the published MD5, unpacked and moved to
    its place. Whatever happens before that leaves nothing behind, but for a `kill -9` or a machine that goes
    down: what these leave, the next download removes.

    Args:
        root: the folder to put it in; it is made where it does not exist.

    Raises:
        DatasetError: no network, the server does not have it, it came incomplete or is something else, no
            permission, no space.
    """
    if (root / FOLDER).exists():
        if any((root / FOLDER / part).is_file() for part in PARTS):
            return
        msg = f"{printable(root / FOLDER)}: is there, but holds neither {' nor '.join(PARTS)}; remove it"
        raise DatasetError(msg)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with part_folder(root, name=FOLDER) as aside:
            _fetch(aside)
            _unpack(aside)
            _move(aside / FOLDER, root / FOLDER)
    except OSError as error:
        msg = f"{printable(root)}: cannot be written: {error.strerror}; nothing was kept; name another --root"
        raise DatasetError(msg) from error


def _fetch(folder: Path) -> None:
    """The archive in a folder, of the published MD5."""
    from torchvision.datasets import CIFAR100
    from torchvision.datasets.utils import download_url

    url = CIFAR100.url
    again = "run it again, or get the file by other means and name it with --root"
    try:
        with _quiet_unless_on_a_terminal():
            download_url(url, folder, filename=ARCHIVE, md5=CIFAR100.tgz_md5)
    except HTTPError as error:
        error.close()
        msg = f"{url}: the server answers {error.code} {error.reason}; nothing was kept; {again}"
        raise DatasetError(msg) from error
    except URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        msg = f"{url}: cannot be reached: {reason}; is there a network? nothing was kept; {again}"
        raise DatasetError(msg) from error
    except (HTTPException, ConnectionError, TimeoutError) as error:
        msg = f"{url}: the connection broke: {error or type(error).__name__}; nothing was kept; {again}"
        raise DatasetError(msg) from error
    except RuntimeError as error:  # torchvision's word for another hash, or for too many redirections
        msg = f"{url}: {_fault(folder / ARCHIVE)}; nothing was kept; {again}"
        raise DatasetError(msg) from error


@contextlib.contextmanager
def _quiet_unless_on_a_terminal() -> Iterator[None]:
    """torchvision draws its progress bar on whatever stderr is."""
    if sys.stderr is not None and sys.stderr.isatty():
        yield
        return
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def _fault(archive: Path) -> str:
    """In words, why an archive has another hash than was published."""
    if not archive.is_file():
        return "the download failed"
    kind = kind_of_file(archive) or ""
    if "HTML" in kind:
        return "the server sent an HTML page instead of the archive"
    n_bytes = archive.stat().st_size
    try:
        with gzip.open(archive) as file:
            while file.read(1 << 20):
                pass
    except EOFError:
        return f"the download was cut short after {n_bytes} bytes"
    except (OSError, zlib.error):
        pass
    return f"what came, {n_bytes} bytes, is not the published archive: its hash is another"


def _unpack(folder: Path) -> None:
    """Train, test and meta out of the archive, and nothing else, whatever paths it holds."""
    (folder / FOLDER).mkdir()
    try:
        with tarfile.open(folder / ARCHIVE) as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if member.isfile() and name in _MEMBERS else None
                if content is not None:
                    with (folder / FOLDER / name).open("wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        msg = f"{ARCHIVE}: cannot be unpacked: {error}; nothing was kept; run it again"
        raise DatasetError(msg) from error


def _move(folder: Path, place: Path) -> None:
    """Put a finished folder in its place, unless another process was faster."""
    try:
        folder.rename(place)
    except OSError:
        if not place.exists():
            raise
