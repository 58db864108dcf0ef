"""Accuracy against shots with both intervals, and how single episodes spread about it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from fsnl.cache.schema import RunSummary
from fsnl.pipeline.compare import EpisodeAccuracies
from fsnl.pipeline.report.drawing import (
    INK,
    MARKERS,
    MUTED,
    SERIES,
    Drawing,
    new_figure,
    shortened,
)

# A panel with more lines, or a figure with more rows, is not read at a glance.
MOST_LINES = len(SERIES)
MOST_ROWS = 30
MOST_BINS = 40


def against_shots(
    name: str, title: str, lines: dict[str, list[RunSummary]], *, limits: tuple[float, float]
) -> Drawing:
    """One panel: a line per name, through its runs in order of shots.

    Args:
        name: of the drawing.
        title: what the lines have in common.
        lines: at most MOST_LINES.
        limits: of the accuracy, in [0, 1], so that panels can be compared.
    """
    ends = "; ".join(
        f"{line}: " + ", ".join(f"{100 * run.accuracy:.1f} % at {run.n_shot}-shot" for run in runs)
        for line, runs in lines.items()
    )
    alt = f"Accuracy against shots, {title}. {ends}."

    def draw() -> Figure:
        figure, axes = new_figure(3.5)
        drawn = [_draw_line(axes, runs, place=i) for i, runs in enumerate(lines.values())]
        some = [run for runs in lines.values() for run in runs]
        _draw_chance(axes, some)
        shots = sorted({run.n_shot for run in some})
        axes.set_xscale("log")
        axes.set_xticks(shots, [str(shot) for shot in shots])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(x=0.08)
        axes.set_ylim(100 * limits[0], 100 * limits[1])
        axes.set_xlabel("shots (support images per class)")
        axes.set_ylabel("accuracy %")
        legend = axes.legend(drawn, ["x"] * len(lines), loc="upper left")
        for text, line in zip(legend.get_texts(), lines, strict=True):
            text.set_text(shortened(line))  # set afterwards: a name may begin with an underscore
        return figure

    return Drawing(name, title, alt, draw)


def _draw_line(axes: Axes, runs: Sequence[RunSummary], *, place: int) -> Line2D:
    """The line with its markers; both bands are drawn too."""
    shots = np.array([run.n_shot for run in runs], dtype=np.float64)
    mean = 100 * np.array([run.accuracy for run in runs])
    (line,) = axes.plot(shots, mean, color=SERIES[place], marker=MARKERS[place], markersize=5, linewidth=1.6)
    for widths, opacity in (
        ([run.ci95_class for run in runs], 0.10),
        ([run.ci95 for run in runs], 0.45),
    ):
        half = 100 * np.array([0.0 if width is None else width for width in widths])
        axes.fill_between(shots, mean - half, mean + half, color=SERIES[place], alpha=opacity, linewidth=0)
        for edge in (mean - half, mean + half):
            axes.plot(shots, edge, color=SERIES[place], alpha=0.6, linewidth=0.6)
    return line


def _draw_chance(axes: Axes, runs: Sequence[RunSummary]) -> None:
    ways = {run.n_way for run in runs}
    if len(ways) == 1:
        chance = 100 / ways.pop()
        axes.axhline(chance, color=MUTED, linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            "chance",
            (1, chance),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            color=MUTED,
            fontsize=8,
        )


def accuracy_limits(runs: Sequence[RunSummary]) -> tuple[float, float]:
    """Of an axis that holds all accuracies, their intervals and chance, in [0, 1]."""
    widths = [max(run.ci95 or 0, run.ci95_class or 0) for run in runs]
    low = min(min(run.accuracy - w, 1 / run.n_way) for run, w in zip(runs, widths, strict=True))
    high = max(run.accuracy + w for run, w in zip(runs, widths, strict=True))
    margin = 0.06 * (high - low)
    return max(0.0, low - margin), min(1.005, high + margin)


def episode_distributions(name: str, title: str, rows: dict[str, EpisodeAccuracies]) -> Drawing:
    """How the accuracy of single episodes is distributed: one ridge per run.

    Args:
        name: of the drawing.
        title: what the runs have in common.
        rows: runs with a summary, by what they are called.
    """
    percentiles = {row: np.percentile(100 * run.accuracies, [5, 50, 95]) for row, run in rows.items()}
    listed = "; ".join(
        f"{row}: median {p[1]:.0f} %, nine in ten between {p[0]:.0f} and {p[2]:.0f} %"
        for row, p in percentiles.items()
    )

    def draw() -> Figure:
        figure, axes = new_figure(0.9 + 0.3 * len(rows))
        for i, run in enumerate(rows.values()):
            _draw_ridge(axes, run, base=len(rows) - 1 - i)
        axes.set_yticks(
            [len(rows) - 1 - i for i in range(len(rows))], [shortened(row) for row in rows], va="bottom"
        )
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(-0.15, len(rows) + 0.1)
        axes.set_xlim(0, 100)
        axes.set_xlabel("accuracy % of one episode (bar: median)")
        axes.grid(visible=False, axis="y")
        return figure

    return Drawing(name, title, f"Distribution of the accuracy of single episodes, {title}. {listed}.", draw)


def _draw_ridge(axes: Axes, run: EpisodeAccuracies, *, base: int) -> None:
    # An episode has so many possible accuracies: bins hold the same number of them, or they would comb.
    n_levels = MOST_BINS if run.summary is None else run.summary.n_way * run.summary.n_query
    step = max(1, round(n_levels / MOST_BINS))
    edges = 100 * (np.arange(0, n_levels + step + 1, step) - 0.5) / n_levels
    heights, _ = np.histogram(100 * run.accuracies, bins=edges)
    scaled = base + 0.9 * heights / heights.max()
    axes.stairs(scaled, edges, baseline=base, fill=True, color=SERIES[0], alpha=0.35, linewidth=0)
    axes.stairs(scaled, edges, baseline=base, color=SERIES[0], linewidth=0.7)
    median = 100 * float(np.median(run.accuracies))
    axes.plot([median, median], [base, base + 0.55], color=INK, linewidth=1.6, solid_capstyle="butt")
