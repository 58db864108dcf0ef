"""One run by class: accuracies as bars, confusions as a matrix whose order shows groups."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fsnl.pipeline.reanalysis import Reanalysis, similar_classes_together
from fsnl.pipeline.report.drawing import INK, MUTED, SERIES, Drawing, new_figure, shortened

MOST_BARS = 40
# From here on single cells are drawn as an image: the file would grow with the square of the classes.
MOST_VECTOR_CLASSES = 40
MOST_NAMED_CLASSES = 64


def class_bars(name: str, title: str, found: Reanalysis, *, chance: float) -> Drawing:
    """Accuracy per class with its interval, the easiest class on top; of many the ends alone."""
    order = np.argsort(-found.accuracy, kind="stable")
    left_out = max(0, len(order) - MOST_BARS)
    if left_out:
        order = np.concatenate([order[: MOST_BARS // 2], order[-(MOST_BARS // 2) :]])
    best, worst = order[0], order[-1]
    alt = (
        f"Accuracy per class, {title}: from {100 * found.accuracy[best]:.1f} % for {found.class_names[best]} "
        f"to {100 * found.accuracy[worst]:.1f} % for {found.class_names[worst]}."
    )

    def draw() -> Figure:
        figure, axes = new_figure(0.9 + 0.21 * len(order))
        heights = np.arange(len(order))[::-1]
        axes.barh(heights, 100 * found.accuracy[order], height=0.68, color=SERIES[0], alpha=0.75)
        axes.errorbar(
            100 * found.accuracy[order],
            heights,
            xerr=100 * np.nan_to_num(found.half_width[order]),
            fmt="none",
            ecolor=INK,
            elinewidth=1.2,
        )
        axes.axvline(100 * chance, color=MUTED, linewidth=1, linestyle=(0, (2, 2)))
        axes.set_yticks(heights, [shortened(found.class_names[c], longest=26) for c in order])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_ylim(-0.7, len(order) - 0.3)
        axes.set_xlim(left=0)
        left = f"; {left_out} classes between these are not shown" if left_out else ""
        axes.set_xlabel(f"accuracy % (dotted: chance{left})")
        return figure

    return Drawing(name, title, alt, draw)


def confusion_matrix(name: str, title: str, found: Reanalysis) -> Drawing:
    """Shares of answers: row the true class, column the answer, among episodes that hold both."""
    order = similar_classes_together(found)
    shares = found.confusion[np.ix_(order, order)]
    off = shares[~np.eye(len(order), dtype=bool)]
    highest = float(np.nanmax(off, initial=0)) or 1.0
    where = np.argwhere((shares == highest) & ~np.eye(len(order), dtype=bool))
    worst = ""
    if len(where):
        asked, answered = (found.class_names[order[i]] for i in where[0])
        worst = (
            f" The largest share off the diagonal is {100 * highest:.1f} %: {asked} answered as {answered}."
        )

    def draw() -> Figure:
        figure, axes = new_figure(1.0 + 4.2 * min(1.0, 0.35 + len(order) / 30))
        _draw_cells(axes, shares, highest=highest)
        if len(order) <= MOST_NAMED_CLASSES:
            size = 8.0 if len(order) <= 26 else 8.0 * 26 / len(order)
            names = [shortened(found.class_names[c], longest=18) for c in order]
            axes.set_xticks(range(len(order)), names, rotation=90, fontsize=size)
            axes.set_yticks(range(len(order)), names, fontsize=size)
        else:
            axes.set_xticks([])
            axes.set_yticks([])
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel(f"answer (strongest blue: {100 * highest:.0f} % of the queries; grey: right answers)")
        axes.set_ylabel("true class")
        return figure

    alt = f"Confusion matrix of {len(order)} classes, {title}, similar classes side by side.{worst}"
    return Drawing(name, title, alt, draw)


def _draw_cells(
    axes: Axes, shares: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", *, highest: float
) -> None:
    """Opacity says how much, so that nothing looks like the page, be it light or dark."""
    n_classes = len(shares)
    on_diagonal = np.eye(n_classes, dtype=bool)
    colours = np.empty((n_classes, n_classes, 4))
    colours[..., :3] = np.where(on_diagonal[..., None], to_rgb(MUTED), to_rgb(SERIES[0]))
    opacity = np.nan_to_num(np.where(on_diagonal, 0.8 * shares, shares / highest))
    colours[..., 3] = np.clip(opacity, 0, 1)
    edges = np.arange(n_classes + 1) - 0.5
    mesh = axes.pcolormesh(
        edges, edges, np.zeros((n_classes, n_classes)), rasterized=n_classes > MOST_VECTOR_CLASSES
    )
    mesh.set_array(None)
    mesh.set(facecolor=colours.reshape(-1, 4))
    axes.set_aspect("equal")
    axes.invert_yaxis()
