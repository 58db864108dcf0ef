"""Embeddings that cannot be compared, named by their images."""

from pathlib import Path

import numpy as np

from fsnl.cache.arrays import F32, I64
from fsnl.cache.errors import ScoringError
from fsnl.cache.schema import Features

# Values looked at in one go.
CHECK_VALUES = 1 << 20


def check_finite(embeddings: F32, features: Features, *, store: Path, after: str = "") -> None:
    """Refuse NaN and infinity, and rows of no numbers at all.

    Args:
        embeddings: (N, D) float32, those of `features` or what a transform made of them.
        features: names the images.
        store: where they lie.
        after: `after transform ...` where one has been applied, for the message.

    Raises:
        ScoringError: some are not finite, the message names images; or they have no dimensions.
    """
    if embeddings.shape[1] == 0:
        msg = f"{store}: its embeddings have 0 dimensions, needed at least 1"
        raise ScoringError(msg)
    bad = non_finite_rows(embeddings)
    if not bad.size:
        return
    cause = f" {after}" if after else ""
    advice = "leave the transform out" if after else "extract again with another precision"
    msg = (
        f"{store}: {bad.size} of {len(embeddings)} embeddings hold NaN or infinity{cause} "
        f"({images(features, bad)}); {advice}, or leave the images out"
    )
    raise ScoringError(msg)


def images(features: Features, rows: I64) -> str:
    """The first three image names of some rows."""
    names = ", ".join(repr(features.image_ids[row]) for row in rows[:3])
    return names + (", ..." if rows.size > 3 else "")


def non_finite_rows(embeddings: F32) -> I64:
    """Rows that hold NaN or infinity, streamed: (N, D) float32 to (n,) int64, ascending."""
    bad = []
    for first, chunk in _chunks(embeddings):
        with np.errstate(over="ignore", invalid="ignore"):
            suspicious = not np.isfinite(chunk.sum())  # a finite sum has finite terms, and is cheaper
        if suspicious:
            bad.append(first + np.flatnonzero(~np.isfinite(chunk).all(axis=1)))
    return np.concatenate(bad).astype(np.int64) if bad else np.empty(0, dtype=np.int64)


def zero_rows(embeddings: F32) -> I64:
    """Rows of zeros only, which have no direction: (N, D) float32 to (n,) int64, ascending."""
    zero = []
    for first, chunk in _chunks(embeddings):
        some = first + np.flatnonzero(chunk[:, 0] == 0)
        zero.append(some[~embeddings[some].any(axis=1)])
    return np.concatenate(zero).astype(np.int64) if zero else np.empty(0, dtype=np.int64)


def _chunks(embeddings: F32) -> "list[tuple[int, F32]]":
    step = max(1, CHECK_VALUES // max(1, embeddings.shape[1]))
    return [(first, embeddings[first : first + step]) for first in range(0, len(embeddings), step)]
