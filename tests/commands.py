"""The commands, called as a user calls them: in this process, or in one of their own."""

import importlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from checkout import console_scripts, run
from click.testing import CliRunner
from PIL import Image


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended, and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """The last line on stderr."""
        return self.stderr.rstrip("\n").split("\n")[-1]


def fsnl(command: str, *arguments: str | Path) -> Outcome:
    """`fsnl("score", store, "--shot", "1")`, in this process; what it does not catch is raised."""
    module, _, name = console_scripts()[f"fsnl-{command}"].partition(":")
    main = getattr(importlib.import_module(module), name)
    done = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name=f"fsnl-{command}")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Outcome(done.exit_code, done.stdout, done.stderr)


def done(command: str, *arguments: str | Path) -> Outcome:
    """The same, which has to succeed."""
    outcome = fsnl(command, *arguments)
    assert outcome.code == 0, outcome.stderr
    return outcome


def fsnl_process(
    command: str, *arguments: str | Path, cwd: Path, before: tuple[str | Path, ...] = ()
) -> Outcome:
    """The same as a process of its own; `before` is what starts it."""
    ended = run(*before, f"fsnl-{command}", *arguments, cwd=cwd, FSNL_HOME=str(cwd / "fsnl-home"))
    return Outcome(ended.returncode, ended.stdout, ended.stderr)


def assert_refused(outcome: Outcome, message: str, *, code: int = 1) -> None:
    """Exit code, the reason on the last line of stderr, no traceback, nothing on stdout."""
    assert "Traceback" not in outcome.stderr
    assert (outcome.code, outcome.stdout) == (code, ""), outcome.stderr
    assert outcome.reason.startswith("Error: "), outcome.stderr
    assert re.search(message, outcome.reason), outcome.reason


def image_folder(
    root: Path, classes: dict[str, int], *, side: int = 4, seed: int = 0, folder: str = ""
) -> Path:
    """`root[/folder]/<class>/<number>.png`: that many images of noise for each class; returns `root`."""
    rng = np.random.default_rng(seed)
    for name, n_images in classes.items():
        (root / folder / name).mkdir(parents=True)
        for number in range(n_images):
            pixels = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / folder / name / f"{number:03d}.png")
    return root


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: files with their bytes, folders with None."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
