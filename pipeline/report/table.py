"""Results as a table for people: what all runs share in a caption, what differs in columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fsnl.cache.schema import RunSummary

CLOSED_NOTE = "± closed 95 % interval over episodes: how well these images were sampled, not new classes"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: heading, cell text, and the caption's words for it when all runs agree (else None)."""

    heading: str
    cell: Callable[[RunSummary], str]
    caption: Callable[[str], str] | None = None
    numeric: bool = False


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _accuracy(run: RunSummary) -> str:
    half_width = "" if run.ci95 is None else f" ± {100 * run.ci95:.2f}"
    return f"{100 * run.accuracy:.2f}{half_width}"


COLUMNS = (
    Column("store", lambda r: r.store, lambda v: v),
    Column("dataset", lambda r: f"{r.dataset} {r.split}", lambda v: v),
    Column("encoder", lambda r: r.encoder, lambda v: f"encoder {v}"),
    Column("px", lambda r: _count(r.image_size), lambda v: f"{v} px", numeric=True),
    Column("dim", lambda r: str(r.embedding_dim), lambda v: f"{v} dimensions", numeric=True),
    Column("way", lambda r: str(r.n_way), lambda v: f"{v}-way", numeric=True),
    Column("query", lambda r: str(r.n_query), lambda v: f"{v} queries per class", numeric=True),
    Column("episodes", lambda r: f"{r.n_episodes:,}", lambda v: f"{v} episodes", numeric=True),
    Column("sampling", lambda r: r.sampling, lambda v: f"drawn {v}"),
    Column("seed", lambda r: str(r.seed), lambda v: f"seed {v}", numeric=True),
    Column("train labels", lambda r: _count(r.labels_used.train), lambda v: f"{v} labels in training"),
    Column("val labels", lambda r: _count(r.labels_used.val), lambda v: f"{v} in selection"),
    Column("transform", lambda r: r.transform, lambda v: f"transform {v}"),
    Column("shot", lambda r: str(r.n_shot), numeric=True),
    Column("classifier", lambda r: r.classifier),
    Column("accuracy %", _accuracy, numeric=True),
    Column("seconds", lambda r: f"{r.seconds:.2f}", numeric=True),
)
# The caption's lines: what was encoded, the episodes, the labels and the transform.
CAPTION_LINES = (
    ("store", "dataset", "encoder", "px", "dim"),
    ("way", "query", "episodes", "sampling", "seed"),
    ("train labels", "val labels", "transform"),
)


def to_table(runs: Sequence[RunSummary]) -> str:
    """Caption, aligned columns, and which interval is shown."""
    headings, rows, numeric = layout(runs)
    widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    lines = [_aligned(cells, widths, numeric) for cells in (headings, *rows)]
    return "\n".join([*caption(runs), "", *lines, "", CLOSED_NOTE])


def to_markdown(runs: Sequence[RunSummary]) -> str:
    """The same as a Markdown table."""
    headings, rows, numeric = layout(runs)
    rule = ["---:" if right else "---" for right in numeric]
    lines = [f"| {' | '.join(map(_escaped, cells))} |" for cells in (headings, rule, *rows)]
    head = [f"{_escaped(line)}  " for line in caption(runs)]
    return "\n".join([*head, "", *lines, "", CLOSED_NOTE])


def caption(runs: Sequence[RunSummary]) -> list[str]:
    """Lines that say what all runs have in common."""
    by_heading = {column.heading: column for column in COLUMNS}
    lines = []
    for headings in CAPTION_LINES:
        shared = [by_heading[h] for h in headings if _is_shared(by_heading[h], runs)]
        words = [c.caption(c.cell(runs[0])) for c in shared if c.caption is not None]
        if words:
            lines.append(", ".join(words))
    return lines


def layout(runs: Sequence[RunSummary]) -> tuple[list[str], list[list[str]], list[bool]]:
    """Headings, rows and which columns are numbers, of what differs between runs."""
    columns = [column for column in COLUMNS if not _is_shared(column, runs)]
    rows = [[column.cell(run) for column in columns] for run in runs]
    return [c.heading for c in columns], rows, [c.numeric for c in columns]


def _is_shared(column: Column, runs: Sequence[RunSummary]) -> bool:
    return column.caption is not None and len({column.cell(run) for run in runs}) == 1


def _aligned(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
