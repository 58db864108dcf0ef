"""What setup.cfg says agrees with what lies on disk, and with what is installed."""

import importlib
import os
import subprocess
import sys
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

from checkout import CHECKOUT, console_scripts, module_files, run, setup_cfg, setup_cfg_pairs

FOLDERS = {folder: package for package, folder in setup_cfg_pairs("options", "package_dir").items()}


def packages_listed() -> list[str]:
    return setup_cfg()["options"]["packages"].split()


def package_folder(package: str) -> Path:
    """`fsnl.cache.x` -> `cache/x` in the checkout."""
    top, rest = package.split(".")[1], package.split(".")[2:]
    return CHECKOUT.joinpath(top, *rest)


def tracked_files() -> list[Path]:
    """Files of the packages that git knows, relative to the checkout; all but compiled ones without git."""
    try:
        command = ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--", *FOLDERS]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = [Path(name) for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = []
    if not found:
        every = [file for folder in FOLDERS for file in (CHECKOUT / folder).rglob("*")]
        found = [f.relative_to(CHECKOUT) for f in every if f.is_file() and "__pycache__" not in f.parts]
    return [file for file in found if (CHECKOUT / file).exists()]


def test_every_folder_with_an_init_is_a_listed_package_and_no_other() -> None:
    on_disk = {
        ".".join([FOLDERS[folder], *init.parent.relative_to(CHECKOUT / folder).parts])
        for folder in FOLDERS
        for init in (CHECKOUT / folder).rglob("__init__.py")
    }
    assert sorted(on_disk) == sorted(packages_listed()), "setup.cfg, [options] packages"


def test_no_module_lies_in_a_folder_that_is_no_package() -> None:
    folders = {package_folder(package) for package in packages_listed()}
    modules = [file for file in tracked_files() if file.suffix == ".py"]
    assert not [str(file) for file in modules if CHECKOUT / file.parent not in folders]


def test_package_data_covers_every_file_that_is_not_python() -> None:
    patterns = {
        package: [pattern.strip() for pattern in listed.replace("\n", ",").split(",")]
        for package, listed in setup_cfg()["options.package_data"].items()
    }
    covered = {
        file
        for file in tracked_files()
        for package, listed in patterns.items()
        if package_folder(package) in (CHECKOUT / file).parents
        if any(fnmatch(os.fspath((CHECKOUT / file).relative_to(package_folder(package))), p) for p in listed)
    }
    assert not [str(file) for file in tracked_files() if file.suffix != ".py" and file not in covered]


def test_every_tracked_file_is_in_the_imported_packages() -> None:
    missing = []
    for file in tracked_files():
        package = importlib.import_module(FOLDERS[file.parts[0]])
        if not Path(package.__path__[0], *file.parts[1:]).exists():
            missing.append(str(file))
    assert not missing


def test_the_installed_version_is_the_one_in_setup_cfg() -> None:
    assert metadata.version("fsnl") == setup_cfg()["metadata"]["version"]


def test_every_command_is_installed_and_every_command_module_is_a_command() -> None:
    entry_points = metadata.distribution("fsnl").entry_points
    assert {e.name: e.value for e in entry_points if e.group == "console_scripts"} == console_scripts()
    command_modules = {
        name
        for name, file in module_files().items()
        if name.startswith("fsnl.pipeline.cli.") and "\ndef main(" in file.read_text(encoding="utf-8")
    }
    assert sorted(console_scripts().values()) == sorted(f"{name}:main" for name in command_modules)


def test_the_checkout_is_not_on_the_path() -> None:
    # With it there, `import pipeline.x` would load a second copy of a module, and its classes are not equal.
    assert CHECKOUT not in [Path(entry).resolve() for entry in sys.path if entry]
    assert not {"pipeline", "cache"} & set(sys.modules)


def test_importing_everything_loads_no_second_copy(tmp_path: Path) -> None:
    code = f"""
import importlib, sys
for module in {list(module_files())!r}:
    importlib.import_module(module)
bare = [name for name in sys.modules if name.partition(".")[0] in ("pipeline", "cache")]
assert not bare, bare
"""
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
