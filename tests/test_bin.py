"""bin/quickstart and bin/test, with a Python that only pretends to install: what they say and leave."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkout import CHECKOUT

# Runs the real Python, save for what takes long; what it was asked to do goes into a file.
PRETENDER = r"""#!/usr/bin/env bash
case "$1 $2" in
    "-m venv")
        folder=${@: -1}
        mkdir -p "$folder/bin" "$folder/lib/python3.11/site-packages"
        cp "$0" "$folder/bin/python"
        touch "$folder/pyvenv.cfg"
        echo "venv" >>"$ASKED" ;;
    "-m pip")
        echo "pip ${@: -1}" >>"$ASKED"
        case ${PIP_WILL:-work} in
            not-connect) echo "WARNING: Location x is ignored: it is no folder"
                echo "WARNING: Retrying (Retry(total=0)) after connection broken by NewConnectionError(...)"
                echo "ERROR: No matching distribution found for torch"
                exit 1 ;;
            break) echo "Installing collected packages: torch"
                touch "$(dirname "$0")/half"
                exit 1 ;;
            be-stopped) touch "$(dirname "$0")/half"
                kill -TERM $PPID ;;
            be-killed) touch "$(dirname "$0")/half"
                kill -KILL $PPID ;;
        esac
        here=$(dirname "$0")
        printf '%s\n' '#!/bin/sh' 'echo 10 classes >&2' 'echo /home/x/digits.h5' >"$here/fsnl-extract"
        printf '%s\n' '#!/bin/sh' 'echo "table of $*"' >"$here/fsnl-score"
        printf '%s\n' '#!/bin/sh' 'echo "pytest $*" >>"$ASKED"' 'echo "3 passed in 0.01s"' >"$here/pytest"
        chmod +x "$here"/* ;;
    "-m ruff")
        echo ruff >>"$ASKED"
        [ -z "${RUFF_SAYS:-}" ] || { echo "$RUFF_SAYS"; exit 1; } ;;
    "-m mypy")
        echo mypy >>"$ASKED" ;;
    "-m build")
        echo build >>"$ASKED"
        mkdir -p "$5" ;;
    "-m pytest")
        echo "wheel's pytest" >>"$ASKED"
        echo "2 passed in 0.01s" ;;
    "- "*)
        [ -z "${WHEEL_IS_NOT_USED:-}" ] || exec REAL "$@" ;;
    *)
        exec REAL "$@" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A checkout whose path has a space, a Python for it, and the folder that a user stands in."""

    checkout: Path
    python: Path
    folder: Path

    @property
    def venv(self) -> Path:
        return self.checkout / ".venv"

    def run(self, script: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        env = {name: value for name, value in os.environ.items() if not name.startswith(("FSNL_", "PYTHON"))}
        env |= {"PYTHON": str(self.python), "ASKED": str(self.folder / "asked"), **variables}
        return subprocess.run(
            [self.checkout / "bin" / script, *arguments],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def asked(self) -> list[str]:
        """What Python was asked to do since the last time."""
        file = self.folder / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines


def write_program(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o755)
    return file


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    shutil.copytree(CHECKOUT / "bin", checkout / "bin")
    for name in ("pipeline", "cache", "tests"):
        (checkout / name).mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, checkout)
    python = write_program(tmp_path / "pretender", PRETENDER.replace("REAL", sys.executable))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Sandbox(checkout, python, folder)


@pytest.fixture
def path_without_python(tmp_path: Path) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    names = "bash basename cat chmod cmp cp dirname env grep ls mkdir rm sed tail touch"
    for name in names.split():
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    return tools


def last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def test_quickstart_prints_the_table_and_the_next_two_commands(sandbox: Sandbox) -> None:
    done = sandbox.run("quickstart")
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.strip().split("\n")]
    assert lines[0] == "table of /home/x/digits.h5 /home/x/digits.h5"
    # They can be pasted, though the path has a space in it.
    extract, score = lines[-2:]
    program = ["bash", "-c", f"{extract}; {score}"]
    pasted = subprocess.run(program, capture_output=True, text=True, check=True)
    assert pasted.stdout == "/home/x/digits.h5\ntable of images.h5\n"
    assert len(done.stderr.strip().split("\n")) == 6, "a line on the first install, then one line per step"


def test_the_next_two_commands_have_options_that_exist() -> None:
    script = (CHECKOUT / "bin" / "quickstart").read_text(encoding="utf-8")
    for command in ("fsnl-extract", "fsnl-score"):
        (line,) = [line for line in script.split("\n") if line.strip().startswith(f"$bin_shown/{command}")]
        module = __import__(f"fsnl.pipeline.cli.{command[5:]}", fromlist=["main"])
        known = {name for option in module.main.params for name in option.opts}
        assert {word for word in line.split() if word.startswith("--")} <= known


def test_the_second_run_installs_nothing(sandbox: Sandbox) -> None:
    sandbox.run("quickstart")
    assert sandbox.asked() == ["venv", f"pip {sandbox.checkout}"]
    assert sandbox.run("quickstart").returncode == 0
    assert sandbox.asked() == []


def test_what_the_checks_install_serves_the_quickstart_too(sandbox: Sandbox) -> None:
    sandbox.run("test")
    assert f"pip {sandbox.checkout}[dev]" in sandbox.asked()
    sandbox.run("quickstart")
    assert sandbox.asked() == []


def test_a_changed_setup_cfg_is_installed_again(sandbox: Sandbox) -> None:
    sandbox.run("test", "-k", "x")
    with (sandbox.checkout / "setup.cfg").open("a") as file:
        file.write("\n# changed\n")
    sandbox.asked()
    sandbox.run("quickstart")
    assert sandbox.asked() == [f"pip {sandbox.checkout}"]
    sandbox.run("test", "-k", "x")
    assert f"pip {sandbox.checkout}[dev]" in sandbox.asked()


def test_fsnl_venv_says_where_and_may_be_relative(sandbox: Sandbox) -> None:
    assert sandbox.run("quickstart", FSNL_VENV="env").returncode == 0
    assert (sandbox.folder / "env" / "pyvenv.cfg").exists()
    assert not sandbox.venv.exists()


def test_without_python_it_says_so(sandbox: Sandbox, path_without_python: Path) -> None:
    done = sandbox.run("quickstart", PATH=str(path_without_python), PYTHON="")
    assert done.returncode == 1
    assert "found no Python; install Python 3.10 or newer" in last_line(done.stderr)
    assert not sandbox.venv.exists()


def test_too_old_a_python_is_named(sandbox: Sandbox, path_without_python: Path) -> None:
    write_program(path_without_python / "python3", "#!/bin/sh\necho 3.8.10\n")
    done = sandbox.run("quickstart", PATH=str(path_without_python), PYTHON="")
    assert done.returncode == 1
    assert "needs Python 3.10 or newer, but python3 is 3.8.10; install one" in last_line(done.stderr)


def test_a_newer_python_beside_an_old_one_is_taken(sandbox: Sandbox, path_without_python: Path) -> None:
    write_program(path_without_python / "python3", "#!/bin/sh\necho 3.8.10\n")
    shutil.copy(sandbox.python, path_without_python / "python3.12")
    done = sandbox.run("quickstart", PATH=str(path_without_python), PYTHON="")
    assert done.returncode == 0, done.stderr


def test_a_python_that_does_not_run_is_named(sandbox: Sandbox) -> None:
    done = sandbox.run("quickstart", PYTHON="/no/such/python")
    assert done.returncode == 1
    assert "PYTHON=/no/such/python does not run" in last_line(done.stderr)


def test_a_python_without_venv_says_what_to_install(sandbox: Sandbox) -> None:
    text = '#!/bin/sh\ncase $2 in *ensurepip*) exit 1 ;; *) echo 3.11.2 ;; esac\n'
    python = write_program(sandbox.folder / "debian", text)
    done = sandbox.run("quickstart", PYTHON=str(python))
    assert done.returncode == 1
    assert "has no venv module" in last_line(done.stderr)
    assert "python3-venv" in last_line(done.stderr)


def test_without_a_network_it_shows_the_end_of_the_log_and_keeps_the_environment(sandbox: Sandbox) -> None:
    done = sandbox.run("quickstart", PIP_WILL="not-connect")
    assert done.returncode == 1
    assert "could not reach its package index" in last_line(done.stderr)
    assert "No matching distribution found for torch" in done.stderr
    assert f"{sandbox.venv}/fsnl-pip.log" in done.stderr
    assert "WARNING" not in done.stderr, "what is harmless, or said by the last line"
    sandbox.asked()
    assert sandbox.run("quickstart").returncode == 0
    assert sandbox.asked() == [f"pip {sandbox.checkout}"]


def test_without_a_network_an_older_install_stays_whole(sandbox: Sandbox) -> None:
    sandbox.run("quickstart")
    assert sandbox.run("test", PIP_WILL="not-connect").returncode == 1
    sandbox.asked()
    assert sandbox.run("quickstart").returncode == 0
    assert sandbox.asked() == []


@pytest.mark.parametrize("end", ["break", "be-stopped", "be-killed"])
def test_a_broken_install_is_never_taken_for_whole(sandbox: Sandbox, end: str) -> None:
    assert sandbox.run("quickstart", PIP_WILL=end).returncode != 0
    assert (sandbox.venv / "bin" / "half").exists()
    sandbox.asked()
    assert sandbox.run("quickstart").returncode == 0
    assert sandbox.asked() == ["venv", f"pip {sandbox.checkout}"]
    assert not (sandbox.venv / "bin" / "half").exists()


def test_a_moved_checkout_makes_its_environment_anew(sandbox: Sandbox) -> None:
    sandbox.run("quickstart")
    moved = sandbox.checkout.rename(sandbox.checkout.with_name("moved"))
    sandbox.asked()
    assert Sandbox(moved, sandbox.python, sandbox.folder).run("quickstart").returncode == 0
    assert sandbox.asked() == ["venv", f"pip {moved}"]


def test_a_folder_that_is_no_environment_is_left_alone(sandbox: Sandbox) -> None:
    (sandbox.folder / "mine").mkdir()
    (sandbox.folder / "mine" / "thesis.txt").touch()
    done = sandbox.run("quickstart", FSNL_VENV="mine")
    assert done.returncode == 1
    assert "no virtual environment" in last_line(done.stderr)
    assert [file.name for file in (sandbox.folder / "mine").iterdir()] == ["thesis.txt"]


def test_an_environment_made_by_somebody_else_is_used_as_it_is(sandbox: Sandbox) -> None:
    made = [str(sandbox.python), "-m", "venv", "own"]
    subprocess.run(made, cwd=sandbox.folder, env={**os.environ, "ASKED": "ignored"}, check=True)
    assert sandbox.run("quickstart", FSNL_VENV="own", PYTHON="/no/such/python").returncode == 0
    assert sandbox.asked() == [f"pip {sandbox.checkout}"]


def test_the_checks_end_in_the_summary_of_pytest(sandbox: Sandbox) -> None:
    done = sandbox.run("test")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 passed in 0.01s\n2 passed in 0.01s\n"
    steps = [line.split()[0] for line in sandbox.asked()]
    assert steps == ["venv", "pip", "ruff", "mypy", "pytest", "build", "venv", "pip", "wheel's"]


def test_arguments_go_to_pytest_and_leave_the_wheel_out(sandbox: Sandbox) -> None:
    assert sandbox.run("test", "-k", "episodes and not slow").returncode == 0
    assert sandbox.asked()[-1] == "pytest -q -k episodes and not slow"


def test_a_failed_check_shows_its_output_and_the_others_still_run(sandbox: Sandbox) -> None:
    done = sandbox.run("test", RUFF_SAYS="cache/x.py:1:1: F401 unused")
    assert done.returncode == 1
    assert "cache/x.py:1:1: F401 unused" in done.stderr
    assert last_line(done.stderr) == "bin/test: failed: ruff"
    assert sandbox.asked()[-1] == "wheel's pytest"


def test_a_wheel_that_is_not_the_one_imported_fails(sandbox: Sandbox) -> None:
    done = sandbox.run("test", WHEEL_IS_NOT_USED="1")
    assert done.returncode == 1
    assert "fsnl.cache is" in done.stderr
    assert last_line(done.stderr) == "bin/test: failed: install the wheel"


@pytest.mark.parametrize(
    "script",
    ["bin/quickstart", "bin/test", "bin/bench-start", "bin/bench-score", "bin/bench-intervals", ".ci/run"],
)
def test_scripts_can_be_run_and_are_valid(script: str) -> None:
    assert os.access(CHECKOUT / script, os.X_OK)
    subprocess.run(["bash", "-n", CHECKOUT / script], check=True)


@pytest.mark.parametrize(
    "command", sorted(path.name for path in (CHECKOUT / "bin").iterdir() if "." not in path.name)
)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_asked_for_help_a_command_prints_what_stands_at_its_head(command: str, option: str) -> None:
    path = CHECKOUT / "bin" / command
    done = subprocess.run([path, option], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == path.read_text(encoding="utf-8").splitlines()[1].removeprefix("# ")
    assert "set -euo" not in done.stdout
    assert done.stderr == ""
