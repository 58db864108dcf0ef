"""Classifiers of the user's own code, `python:FILE:FUNCTION`, on the contract of all others."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsnl.cache.arrays import Floats
from fsnl.cache.errors import ScoringError
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.user_code import FAILURES, run_file, told

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
    try:
        module = run_file(path, keep_on_path=False)
    except FAILURES as error:
        raise _failed(path, name=name, error=error) from error
    if module is None:
        msg = f"classifier {name!r}: {path} is not a Python file (.py)"
        raise ScoringError(msg)
    found = getattr(module, function, None)
    if not callable(found):
        msg = f"classifier {name!r}: {file} has no function {function!r}"
        raise ScoringError(msg)

    def scores(support: Floats, query: Floats) -> Floats:
        try:
            returned = np.asarray(found(support, query))
        except FAILURES as error:
            raise _failed(path, name=name, error=error) from error
        return _checked(returned, (*query.shape[:2], support.shape[1]), name=name)

    return Classifier(name=name, scores=scores)


def _failed(path: Path, *, name: str, error: BaseException) -> ScoringError:
    return ScoringError(f"classifier {name!r} raised {told(error, path=path)}")


def _checked(scores: npt.NDArray[Any], shape: tuple[int, ...], *, name: str) -> Floats:
    if scores.shape != shape or scores.dtype.kind not in "fiub":
        msg = f"classifier {name!r} returned {scores.dtype} {scores.shape}, needed real numbers {shape}"
        raise ScoringError(msg)
    if np.isnan(scores).any():
        msg = f"classifier {name!r} returned NaN"
        raise ScoringError(msg)
    return scores
