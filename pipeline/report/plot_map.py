"""A map of a store's embeddings: the two directions in which they vary most."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fsnl.cache.arrays import F32, F64, I64
from fsnl.cache.errors import ScoringError
from fsnl.cache.schema import Features
from fsnl.pipeline.report.drawing import INK, Drawing, new_figure, shortened

MOST_POINTS = 2_000
MOST_NAMED_CLASSES = 24
N_BLOCK, N_STEPS = 8, 25


@dataclass(frozen=True, slots=True)
class EmbeddingMap:
    """Embeddings in two dimensions.

    Attributes:
        points: (n, 2) coordinates along the first two principal components.
        labels: (n,) int64 class of each point.
        explained: share of the variance along each of the two.
    """

    points: F64
    labels: I64
    explained: tuple[float, float]


def principal_map(features: Features, *, n_most: int = MOST_POINTS) -> EmbeddingMap:
    """Principal component analysis of some rows, evenly of every class.

    Args:
        features: N embeddings; a memory map is read in ascending order of rows.
        n_most: how many rows at most.

    Raises:
        ScoringError: some of these rows hold NaN or infinity.
    """
    rows = _evenly(features.labels, n_most=n_most)
    x = np.array(features.embeddings[rows], dtype=np.float32)
    if not np.isfinite(x).all():
        first = features.image_ids[rows[np.flatnonzero(~np.isfinite(x).all(axis=1))[0]]]
        msg = f"the embedding of {first!r} holds NaN or infinity: they cannot be mapped; leave out --store"
        raise ScoringError(msg)
    scale = _power_of_two(float(np.abs(x).max(initial=0.0)))
    x /= np.float32(scale)  # squares of the largest numbers would overflow
    x -= x.mean(axis=0, dtype=np.float64).astype(np.float32)
    points = (x @ _leading_directions(x)).astype(np.float64)  # (n, 2)
    # A component has no direction of its own: the farthest point lies to the right, or up.
    points = points * np.where(points.max(axis=0) < -points.min(axis=0), -1, 1)
    total = float((x.astype(np.float64) ** 2).sum()) or 1.0
    first, second = ((points**2).sum(axis=0) / total).tolist()
    return EmbeddingMap(points * scale, features.labels[rows], (first, second))


def _power_of_two(largest: float) -> float:
    """What brings the largest number to about 1; exact."""
    exponent = int(np.clip(np.frexp(largest)[1], -126, 127)) if largest else 0
    return float(np.ldexp(1.0, exponent))


def _leading_directions(x: F32) -> F32:
    """(D, 2) the two directions of most variance of centred (n, D), by block power iteration.

    A whole eigendecomposition would take a minute where this takes a second. Of the block of eight the first
    two converge with the square of the ratio of the ninth singular value to the second, per step.
    """
    block = np.random.default_rng(0).normal(size=(x.shape[1], N_BLOCK)).astype(np.float32)
    for _ in range(N_STEPS):
        block, _ = np.linalg.qr(x.T @ (x @ block))
    _, _, rotation = np.linalg.svd(x @ block, full_matrices=False)
    directions = np.zeros((x.shape[1], 2), dtype=np.float32)  # the second stays 0 in one dimension
    found = (block @ rotation.T)[:, :2]
    directions[:, : found.shape[1]] = found
    return directions


def _evenly(labels: I64, *, n_most: int) -> I64:
    """Rows, ascending: all, or as many of every class, spread over it."""
    if len(labels) <= n_most:
        return np.arange(len(labels))
    by_class = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    share = max(1, n_most // len(by_class))
    chosen = [
        rows[np.linspace(0, len(rows) - 1, min(share, len(rows))).astype(np.int64)] for rows in by_class
    ]
    return np.sort(np.concatenate(chosen))


def embedding_map(name: str, title: str, features: Features) -> Drawing:
    """Points coloured by class, each class named at its middle."""
    found = principal_map(features)
    n_shown, n_rows = len(found.labels), len(features.labels)
    of = "" if n_shown == n_rows else f" of {n_rows:,}"
    n_classes = len(np.unique(found.labels))
    alt = (
        f"Map of {n_shown:,}{of} embeddings of {n_classes} classes, {title}, along their first two principal "
        f"components, which hold {found.explained[0]:.0%} and {found.explained[1]:.0%} of the variance."
    )

    def draw() -> Figure:
        figure, axes = new_figure(4.6)
        hues = _hues(n_classes)
        for i, c in enumerate(np.unique(found.labels)):
            own = found.points[found.labels == c]
            axes.scatter(own[:, 0], own[:, 1], s=9, color=hues[i], alpha=0.55, linewidths=0, rasterized=True)
        if n_classes <= MOST_NAMED_CLASSES:
            _name_classes(axes, found, features.class_names, hues=hues)
        axes.set_xlabel(f"first component, {found.explained[0]:.0%} of the variance")
        axes.set_ylabel(f"second, {found.explained[1]:.0%}")
        axes.set_xticks([])
        axes.set_yticks([])
        return figure

    return Drawing(name, f"{title}, {n_shown:,}{of} images", alt, draw)


def _name_classes(axes: Axes, found: EmbeddingMap, names: tuple[str, ...], *, hues: F64) -> None:
    """Names in both margins, each with a line to the median of its class."""
    classes = np.unique(found.labels)
    middles = np.array([np.median(found.points[found.labels == c], axis=0) for c in classes])
    low, high = found.points.min(axis=0), found.points.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    axes.set_xlim(low[0] - 0.36 * span[0], high[0] + 0.36 * span[0])
    from_left = np.argsort(middles[:, 0], kind="stable")
    half = len(classes) // 2
    for side, group in ((-1, from_left[:half]), (1, from_left[half:])):
        ordered = group[np.argsort(middles[group, 1], kind="stable")]
        edge = low[0] - 0.04 * span[0] if side < 0 else high[0] + 0.04 * span[0]
        heights = low[1] + span[1] * (np.arange(len(ordered)) + 0.5) / max(1, len(ordered))
        for i, height in zip(ordered, heights, strict=True):
            axes.plot([edge, middles[i, 0]], [height, middles[i, 1]], color=hues[i], linewidth=0.9)
            axes.plot(*middles[i], marker="o", markersize=6, color=hues[i], markeredgecolor=INK)
            label = shortened(names[classes[i]], longest=16)
            align = "right" if side < 0 else "left"
            axes.text(edge, height, f" {label} ", ha=align, va="center", fontsize=8, color=INK)


def _hues(n: int) -> F64:
    """(n, 3) colours round the wheel, neighbours far apart, neither light nor dark."""
    angles = 2 * np.pi * ((np.arange(n) * 0.618034) % 1)
    return np.asarray(0.52 + 0.36 * np.cos(angles[:, None] - np.array([0, 2.0944, 4.1888])))
