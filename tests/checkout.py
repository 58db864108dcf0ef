"""Where things lie: the checkout these tests belong to, and the fsnl they import, which may be a wheel's."""

import configparser
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import fsnl.cache
import fsnl.pipeline

CHECKOUT = Path(__file__).resolve().parents[1]
# The project's real images; not part of the repository, and not on every machine.
REAL_DATA = CHECKOUT.parent / "shared" / "data"


@cache
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(CHECKOUT / "setup.cfg", encoding="utf-8")
    return parser


def setup_cfg_pairs(section: str, option: str) -> dict[str, str]:
    """Lines `key = value` of one setting."""
    lines = setup_cfg()[section][option].split("\n")
    pairs = (line.partition("=") for line in lines if line.strip() and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def console_scripts() -> dict[str, str]:
    """`fsnl-score` -> `fsnl.pipeline.cli.score:main`, as setup.cfg says."""
    return setup_cfg_pairs("options.entry_points", "console_scripts")


@cache
def module_files() -> dict[str, Path]:
    """Every module of the imported fsnl, by name."""
    files = {}
    for package in (fsnl.cache, fsnl.pipeline):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*.py")):
            parts = [package.__name__, *file.relative_to(root).with_suffix("").parts]
            files[".".join(part for part in parts if part != "__init__")] = file
    return files


def environment(**variables: str) -> dict[str, str]:
    """For a subprocess: this one's, with the commands of the running Python's environment first on PATH."""
    own = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": own + os.pathsep + os.environ.get("PATH", ""), **variables}


def run(*command: str | Path, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A command, to its end; its output as text, and no exception for its exit status."""
    env = environment(**variables)
    return subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
