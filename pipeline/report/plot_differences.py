"""Forest plot: differences of runs with both intervals, about a line at zero."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fsnl.pipeline.compare import Comparison
from fsnl.pipeline.report.drawing import INK, MUTED, PAPER, SERIES, Drawing, new_figure, shortened


def forest(
    name: str, title: str, comparisons: Sequence[Comparison], *, labels: Sequence[str], sides: tuple[str, str]
) -> Drawing:
    """A row per comparison: thick the interval over episodes, thin the one over classes.

    Args:
        name: of the drawing.
        title: which question the comparisons answer.
        comparisons: paired ones.
        labels: of the rows.
        sides: what a difference to the left and to the right of zero means.
    """
    listed = "; ".join(
        f"{label}: {100 * one.difference:+.2f} points" for label, one in zip(labels, comparisons, strict=True)
    )

    def draw() -> Figure:
        figure, axes = new_figure(1.05 + 0.27 * len(comparisons))
        for i, one in enumerate(comparisons):
            _draw_row(axes, one, height=len(comparisons) - 1 - i)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(
            [len(comparisons) - 1 - i for i in range(len(comparisons))],
            [shortened(label, longest=44) for label in labels],
        )
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False, axis="y")
        axes.set_ylim(-0.7, len(comparisons) - 0.3)
        left, right = (shortened(side, longest=36) for side in sides)
        figure.supxlabel(f"difference in accuracy, percentage points\n← {left}  |  {right} →", fontsize=9)
        return figure

    return Drawing(name, title, f"Forest plot, {title}. {listed}.", draw)


def _draw_row(axes: Axes, one: Comparison, *, height: int) -> None:
    decided = one.on_episodes in ("a", "b")
    colour = SERIES[0 if one.difference > 0 else 1] if decided else MUTED
    x = 100 * one.difference
    for width, thickness in ((one.ci95_class, 1.2), (one.ci95, 4.0)):
        if width is not None:
            ends = [x - 100 * width, x + 100 * width]
            axes.plot(ends, [height, height], color=colour, linewidth=thickness, solid_capstyle="butt")
    on_classes = one.on_new_classes in ("a", "b")
    axes.plot(
        x, height, marker="o", markersize=5, color=colour, markerfacecolor=colour if on_classes else PAPER
    )
