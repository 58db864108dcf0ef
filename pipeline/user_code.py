"""Files of the user's own code: run as an import would, and what they raise told in one line."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

# What such code may end in; an exit is no less a failure, and Ctrl-C is the user's own.
FAILURES = (Exception, SystemExit)


def run_file(path: Path, *, keep_on_path: bool) -> ModuleType | None:
    """The module that a Python file makes, its folder on the module path; None where it is none (`.py`).

    Args:
        path: the file.
        keep_on_path: leave its folder there afterwards, for what its functions import when they are called.

    Raises:
        Exception, SystemExit: whatever the file raises.
    """
    name = f"fsnl_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    added = folder not in sys.path
    if added:
        sys.path.append(folder)
    sys.modules[name] = module  # as an import does: dataclasses and pickles look there
    try:
        spec.loader.exec_module(module)
    finally:
        if added and not keep_on_path:
            sys.path.remove(folder)
    return module


def told(error: BaseException, *, path: Path) -> str:
    """What was raised, and the last line of the file that was running: `TypeError: odd (own.py, line 3)`."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception of their own may fail at that, too
        text = ""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == path.resolve()
    ]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    where = f", line {lines[-1]}" if lines and lines[-1] is not None else ""
    return f"{type(error).__name__}{': ' if text else ''}{text} ({path}{where})"
