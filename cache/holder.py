"""Who is writing a store: one run at a time, told apart from runs that died.

The holder keeps a file open under a POSIX lock (`fcntl.lockf`) and a record in it: host, process, since
when. The system lets go of such a lock when the process ends, however it ends, and child processes do not
inherit it, so a lock that can be had belongs to nobody. What it cannot tell is whether a process on
*another* host is alive (locks do not reach through every network file system): there the record stands
until it is removed, and the age of the holder's last sign of life, the file's time of change, is told.
Where the system has no such locks, a sign of life younger than `ALIVE_SECONDS` stands for one.
"""

import contextlib
import errno
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from fsnl.cache.errors import HeldError, WriteError

if sys.platform != "win32":
    import fcntl

HEARTBEAT_SECONDS = 5.0
ALIVE_SECONDS = 60.0

_held_here: set[Path] = set()


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that writes, or wrote, a store.

    Attributes:
        host: name of its machine.
        pid: number of its process.
        since: when it began, ISO 8601 with the offset from UTC.
        job: what all ranks of one job share, empty for a process by itself.
    """

    host: str
    pid: int
    since: str
    job: str = ""


def this_process(*, job: str = "") -> Holder:
    """The calling process as a holder from now on."""
    since = datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds")
    return Holder(host=socket.gethostname(), pid=os.getpid(), since=since, job=job)


def read_holder(path: Path) -> Holder | None:
    """The record in the lock file of another process; None where there is none, or none that is whole."""
    try:
        return _parsed(path.read_bytes())
    except OSError:
        return None


def seconds_since_sign_of_life(path: Path) -> float | None:
    """Age of a heartbeat; None where the file is gone."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None


@contextlib.contextmanager
def held(path: Path, holder: Holder, *, target: Path, take_over: bool = False) -> Iterator[None]:
    """Hold a lock file while the block runs; nothing else in the process may open it meanwhile.

    Args:
        path: the lock file, in a folder that is there.
        holder: the calling process.
        target: what is held, for messages.
        take_over: go on in spite of a record of another host.

    Raises:
        HeldError: somebody else holds it.
        WriteError: the file cannot be made.
    """
    if path.resolve() in _held_here:  # such locks are those of a process, not of a thread
        raise HeldError(target, "is being written by this very process")
    file = _acquired(path, holder, target=target, take_over=take_over)
    _held_here.add(path.resolve())
    try:
        with beating(path):
            yield
    finally:
        _held_here.discard(path.resolve())
        with contextlib.suppress(OSError):
            file.truncate(0)  # no record, where an open file cannot be removed
            path.unlink()
        file.close()  # and with it the lock


@contextlib.contextmanager
def beating(path: Path) -> Iterator[None]:
    """Give a sign of life every few seconds while the block runs, by the file's time of change."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=beat, name="fsnl-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _acquired(path: Path, holder: Holder, *, target: Path, take_over: bool) -> IO[bytes]:
    """The open lock file, with the record of its new holder."""
    while True:
        try:
            file = path.open("a+b")
        except OSError as error:
            raise WriteError(target, f"cannot be locked: {path}: {error.strerror}") from error
        try:
            locked = _lock(file)
            file.seek(0)
            before = _parsed(file.read())
            if locked is False:
                raise HeldError(target, _held_by(before))
            if _is_same(file, path):  # else its last holder took it away between opening and locking
                age = seconds_since_sign_of_life(path) or 0.0
                if before is not None and not take_over and _may_live(before, holder, locked=locked, age=age):
                    raise HeldError(target, _held_by(before, age=age))
                file.truncate(0)
                file.write(json.dumps(asdict(holder)).encode())
                file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: IO[bytes]) -> bool | None:
    """True where the lock is ours now, False where it is another's, None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EACCES, errno.EAGAIN) else None
    return True


def _may_live(before: Holder, holder: Holder, *, locked: bool | None, age: float) -> bool:
    """Whether the holder on record may be alive although its lock, if there are locks, can be had."""
    return before.host != holder.host or (locked is None and age < ALIVE_SECONDS)


def _is_same(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _held_by(holder: Holder | None, *, age: float | None = None) -> str:
    if holder is None:
        return "is being written by another process; wait for it, or use another --out"
    who = f"is being written by process {holder.pid} on {holder.host} since {holder.since}"
    if age is None:
        return f"{who}; wait for it, or use another --out"
    return (
        f"{who}, last sign of life {age:,.0f} s ago; wait for it, use another --out, "
        "or go on with --take-over if it is dead"
    )


def _parsed(record: bytes) -> Holder | None:
    try:
        return Holder(**json.loads(record))
    except (ValueError, TypeError):
        return None
