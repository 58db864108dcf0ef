"""Chains of steps: from the user's words, fitted in order, applied to all rows."""

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from fsnl.cache.arrays import F32, F64
from fsnl.cache.errors import ScoringError
from fsnl.pipeline.transforms.base import Apply, Step
from fsnl.pipeline.transforms.principal import pca, whiten
from fsnl.pipeline.transforms.scaling import center, l2, power, zscore

FORMS = ("none", "l2", "center:SPLIT", "zscore:SPLIT", "power[:P]", "pca:SPLIT:DIM", "whiten:SPLIT[:DIM]")
# Values of a chunk.
CHUNK_VALUES = 1 << 18


def parse_chain(text: str) -> tuple[Step, ...]:
    """Steps of a chain, `zscore:train,l2`; none for `none`.

    Args:
        text: steps with commas between; SPLIT is a split of the scored store, or FILE:SPLIT of another.

    Raises:
        ScoringError: a step that there is not, or whose arguments are wrong; the message says what there is.
    """
    if text.strip() == "none":
        return ()
    return tuple(_step(part.strip()) for part in text.split(","))


def _step(text: str) -> Step:
    kind, _, rest = text.partition(":")
    plain: dict[str, Callable[[], Step]] = {"l2": l2}
    sourced: dict[str, Callable[[str], Step]] = {"center": center, "zscore": zscore}
    if kind in plain and not rest:
        return plain[kind]()
    if kind in sourced and rest:
        return sourced[kind](rest)
    if kind == "power":
        return power(_exponent(text, rest))
    if kind in ("pca", "whiten") and rest:
        source, dim = _source_and_dim(rest)
        if kind == "whiten":
            return whiten(source, dim)
        if dim is not None:
            return pca(source, dim)
    kinds = [form.partition(":")[0].partition("[")[0] for form in FORMS]
    if kind in kinds:
        form = FORMS[kinds.index(kind)]
        hint = "; stands alone, not in a chain" if kind == "none" else f"; needed {form}"
    else:
        close = difflib.get_close_matches(kind, kinds, n=1)
        guess = f"; did you mean {close[0]}?" if close else ""
        hint = f", there are {', '.join(FORMS)}{guess}"
    msg = f"no transform {text!r}{hint}"
    raise ScoringError(msg)


def _exponent(text: str, given: str) -> float:
    try:
        exponent = float(given) if given else 0.5
    except ValueError:
        exponent = math.nan
    if not 0 < exponent < math.inf:
        msg = f"transform {text!r}: P must be a number above 0, is {given!r}"
        raise ScoringError(msg)
    return exponent


def _source_and_dim(rest: str) -> tuple[str, int | None]:
    """`train:64` to train and 64; `train` and `other.h5:train` without a number."""
    source, _, last = rest.rpartition(":")
    if source and last.isascii() and last.isdigit() and int(last) > 0:
        return source, int(last)
    return rest, None


def fit_chain(steps: Sequence[Step], sources: Mapping[str, F32]) -> tuple[Apply, ...]:
    """Fit each step on its source's rows, the earlier steps applied to them.

    Args:
        steps: from `parse_chain`.
        sources: (M, D) float32 rows for every step's source.

    Raises:
        ScoringError: a step cannot be fitted on these rows.
    """
    fitted: tuple[Apply, ...] = ()
    for step in steps:
        rows = np.empty((0, 0), np.float32) if step.source is None else sources[step.source]
        before = fitted

        def stream(rows: F32 = rows, before: tuple[Apply, ...] = before) -> Iterator[F64]:
            return (_through(before, chunk) for chunk in _chunks(rows))

        fitted = (*fitted, step.fit(stream))
    return fitted


def apply_chain(fitted: Sequence[Apply], embeddings: F32) -> F32:
    """All rows through fitted steps, in float64 and rounded once: (N, D) to (N, D') float32.

    Args:
        fitted: from `fit_chain`; without any, the embeddings themselves come back.
        embeddings: (N, D) float32.
    """
    if not fitted:
        return embeddings
    first = 0
    transformed: F32 | None = None
    for chunk in _chunks(embeddings):
        rows = _through(fitted, chunk)
        if transformed is None:
            transformed = np.empty((len(embeddings), rows.shape[1]), np.float32)
        with np.errstate(over="ignore"):  # the caller looks for infinities
            transformed[first : first + len(rows)] = rows
        first += len(rows)
    return embeddings if transformed is None else transformed


def _through(fitted: Sequence[Apply], rows: F64) -> F64:
    for apply in fitted:
        rows = apply(rows)
    return rows


def _chunks(embeddings: F32) -> Iterator[F64]:
    """The rows as (n, D) float64, some at a time."""
    step = max(1, CHUNK_VALUES // max(1, embeddings.shape[1]))
    for first in range(0, len(embeddings), step):
        yield embeddings[first : first + step].astype(np.float64)
