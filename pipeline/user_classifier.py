"""Classifiers of the user's own code, `python:FILE:FUNCTION`, on the contract of all others."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fsnl.cache.arrays import Floats
from fsnl.cache.errors import ScoringError
from fsnl.pipeline.classifiers.base import Classifier

PREFIX = "python:"


def user_classifier(name: str) -> Classifier:
    """A function `(support, query) -> scores` in a file, as a classifier.

    The file is run as an import would, with its folder on the module path. The function gets float32 arrays
    (B, W, K, D) and (B, n, D) that it may not write to, from several threads at once, and returns (B, n, W)
    real numbers, higher is better; the lowest way answers in a tie.

    Args:
        name: `python:FILE:FUNCTION`.

    Raises:
        ScoringError: no such file or function, or an exception in the user's code, now or when called.
    """
    file, _, function = name.removeprefix(PREFIX).rpartition(":")
    if not file or not function:
        msg = f"classifier {name!r}: needed python:FILE:FUNCTION, as in python:mine.py:scores"
        raise ScoringError(msg)
    path = Path(file)
    if not path.is_file():
        msg = f"classifier {name!r}: there is no file {file}"
        raise ScoringError(msg)
    found = getattr(_run(path, name=name), function, None)
    if not callable(found):
        msg = f"classifier {name!r}: {file} has no function {function!r}"
        raise ScoringError(msg)

    def scores(support: Floats, query: Floats) -> Floats:
        try:
            returned = found(support, query)
        except (Exception, SystemExit) as error:
            raise _failed(path, name=name, error=error) from error
        return _checked(returned, (*query.shape[:2], support.shape[1]), name=name)

    return Classifier(name=name, scores=scores)


def _run(path: Path, *, name: str) -> ModuleType:
    module_name = f"fsnl_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        msg = f"classifier {name!r}: {path} is not a Python file"
        raise ScoringError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # as an import does: dataclasses and pickles look there
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _failed(path, name=name, error=error) from error
    finally:
        sys.path.remove(str(path.parent.absolute()))
    return module


def _failed(path: Path, *, name: str, error: BaseException) -> ScoringError:
    """What the user's code raised, and in which of its lines."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    where = f", line {lines[-1]}" if lines and lines[-1] is not None else ""
    text = " ".join(str(error).split())
    return ScoringError(f"classifier {name!r} raised {type(error).__name__}: {text} ({path}{where})")


def _checked(returned: Any, shape: tuple[int, ...], *, name: str) -> Floats:
    scores = np.asarray(returned)
    if scores.shape != shape or scores.dtype.kind not in "fiub":
        msg = f"classifier {name!r} returned {scores.dtype} {scores.shape}, needed real numbers {shape}"
        raise ScoringError(msg)
    if np.isnan(scores).any():
        msg = f"classifier {name!r} returned NaN"
        raise ScoringError(msg)
    return scores
