"""What all commands share: help, version, and how an error becomes one line and an exit code."""

import errno
import gc
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from fsnl.cache.errors import FsnlError

# Options whose numbers decide how much memory a command takes.
_MEMORY_OPTIONS = ("--episodes", "--threads", "--batch-size", "--image-size", "--workers")

# With Python's own 700 or 2,000, all that torch makes on import is gone over again and again:
# 0.3 of the 4.4 s of a small extraction.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000

CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100}


class Command(click.Command):
    """A command that ends in a message, never in a traceback, where the user or the data is at fault."""

    def invoke(self, ctx: click.Context) -> Any:
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 10, 100)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a terminal without our characters still gets an answer
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except FsnlError as error:
            raise _Failure(str(error)) from error
        except MemoryError as error:
            own = [name for option in self.params for name in option.opts if name in _MEMORY_OPTIONS]
            advice = f"; use a smaller number for {' or '.join(own)}" if own else ""
            reason = f"not enough memory{advice}"
            raise _Failure(reason) from error
        except OSError as error:  # what the system refuses: a name too long, a folder closed meanwhile
            if error.errno == errno.EPIPE:  # click's own: whoever read the output has gone
                raise
            where = "" if error.filename is None else f"{error.filename}: "
            reason = f"{where}{error.strerror or error}"
            raise _Failure(reason) from error


class _Failure(click.ClickException):
    """Exit code 1, the reason on one line."""

    def __init__(self, message: str) -> None:
        super().__init__(message.replace("\r", "\\r").replace("\n", "\\n"))


def note(text: str) -> None:
    """A line for the user on stderr."""
    click.echo(text, err=True)


def refuse_same_file(out: Path, inputs: Iterable[Path | str | None], *, option: str = "--out") -> None:
    """Refuse to write one of the files read: even --force shall not eat its own input.

    Args:
        out: what is to be written.
        inputs: files, and words of the user that may name one, as in `python:FILE:FUNCTION`.
        option: which names `out`.

    Raises:
        click.BadParameter: it is read.
    """
    for given in inputs:
        for path in _named_files(given) if isinstance(given, str) else [given]:
            if path is not None and out.exists() and path.exists() and out.samefile(path):
                msg = f"{out} is read by this very call; name another file"
                raise click.BadParameter(msg, param_hint=option)


def _named_files(text: str) -> Iterator[Path]:
    """Every stretch between colons, within commas too, might be a file's name."""
    for words in {text, *text.split(",")}:
        parts = words.split(":")
        for first, last in itertools.combinations(range(len(parts) + 1), 2):
            if name := ":".join(parts[first:last]).strip():
                yield Path(name)


def check_split_name(split: str) -> None:
    """Refuse what cannot be the name of a group in a store.

    Raises:
        click.BadParameter: empty, a dot or two, or with a slash.
    """
    if not split or "/" in split or split in (".", ".."):
        msg = f"{split!r} cannot name a split"
        raise click.BadParameter(msg, param_hint="--split")


def example(*lines: str) -> str:
    """The end of a help text: commands that could be pasted."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
