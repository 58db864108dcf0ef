"""Every command of setup.cfg keeps the manners of design.md, section 3, and loads no more than it needs."""

import importlib
import json
import re
import sys
from importlib import metadata
from pathlib import Path

import click
import pytest
from checkout import console_scripts, run

COMMANDS = console_scripts()
every_command = pytest.mark.parametrize("command", COMMANDS)


def click_command(command: str) -> click.Command:
    module, _, name = COMMANDS[command].partition(":")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, click.Command)
    return found


def modules_loaded(command: str, *arguments: str, cwd: Path) -> set[str]:
    """What a command has loaded when it ends, from a Python of its own; it has to succeed."""
    module, _, name = COMMANDS[command].partition(":")
    code = f"""
import json, sys
from {module} import {name} as main
sys.argv = {[command, *arguments]!r}
try:
    main()
finally:
    with open("modules.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""
    done = run(sys.executable, "-c", code, cwd=cwd, FSNL_HOME=str(cwd / "home"))
    assert done.returncode == 0, done.stderr
    return set(json.loads((cwd / "modules.json").read_text()))


@every_command
def test_help_loads_nothing_heavy(command: str, tmp_path: Path) -> None:
    # This is what makes it quick; a test that looked at the clock would fail on a busy machine.
    loaded = modules_loaded(command, "--help", cwd=tmp_path)
    assert not {"torch", "torchvision", "sklearn", "scipy", "h5py", "faiss", "PIL"} & loaded


@every_command
def test_help_ends_in_an_example(command: str, tmp_path: Path) -> None:
    done = run(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    last_paragraph = done.stdout.rstrip().split("\n\n")[-1]
    assert re.search(rf"^\s+(\$ )?{command} .*\S", last_paragraph, re.MULTILINE)
    assert run(command, "-h", cwd=tmp_path).stdout == done.stdout


@every_command
def test_every_option_has_help_and_shows_its_default(command: str) -> None:
    parsed = click_command(command)
    context = click.Context(parsed, info_name=command, **parsed.context_settings)
    for option in parsed.get_params(context):
        if isinstance(option, click.Option) and not option.hidden:
            record = option.get_help_record(context)
            assert record is not None
            assert option.help, option.name
            # A default is a value, and not the absence of one: a flag that is off says nothing.
            if option.to_info_dict()["default"] not in (None, False, (), []):
                assert "default" in record[1], f"{option.name}: {record[1]}"


@every_command
def test_version_is_that_of_the_installed_package(command: str, tmp_path: Path) -> None:
    done = run(command, "--version", cwd=tmp_path)
    assert done.returncode == 0
    assert metadata.version("fsnl") in done.stdout


@every_command
def test_an_unknown_option_is_a_wrong_call(command: str, tmp_path: Path) -> None:
    done = run(command, "--no-such-option", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--no-such-option" in done.stderr.strip().split("\n")[-1]


def test_extraction_leaves_faiss_out_and_scoring_leaves_torch_out(tmp_path: Path) -> None:
    extraction = modules_loaded("fsnl-extract", "--out", "digits.h5", cwd=tmp_path)
    assert "h5py" in extraction
    assert "faiss" not in extraction

    arguments = ["digits.h5", "--episodes", "20", "--out", "results.h5"]
    scoring = modules_loaded("fsnl-score", *arguments, cwd=tmp_path)
    assert {"h5py", "faiss"} <= scoring, "its defaults are two classifiers, one of them on FAISS"
    assert not {"torch", "torchvision", "sklearn", "scipy", "PIL"} & scoring
    assert (tmp_path / "results.h5").exists()

    sampling = modules_loaded("fsnl-sample", "digits.h5", "--episodes", "20", "--out", "e.h5", cwd=tmp_path)
    assert not {"torch", "torchvision", "sklearn", "scipy.stats", "faiss"} & sampling
