"""Results as a table for people: what all runs share in a caption, what differs in columns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fsnl.cache.schema import RunSummary
from fsnl.pipeline.report import grid

OVER_EPISODES = {
    "with replacement": "± episodes: closed 95 % interval over the episodes: "
    "how well these images were sampled",
    "without replacement": "± episodes: open 95 % interval over episodes that share no image: "
    "what other images of these classes would give",
}
SUPPORT_NOTE = (
    "support labels: of an episode; train and val labels: seen by the encoder's training and selection"
)
OVER_CLASSES = "± classes: 95 % interval over the classes (jackknife): what other classes would give"
DOUBTFUL = "?"  # after a half width that has a reason to be doubted
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: heading, cell text, and the caption's words for it when all runs agree (else None)."""

    heading: str
    cell: Callable[[RunSummary], str]
    caption: Callable[[str], str] | None = None
    numeric: bool = False


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def per_cent(value: float | None, reason: str | None = None) -> str:
    """A share in per cent; what does not exist is a dash, what is doubtful has a question mark."""
    if value is None:
        return ABSENT
    return f"{100 * value:.2f}{DOUBTFUL if reason else ''}"


COLUMNS = (
    Column("store", lambda r: r.store, lambda v: v),
    Column("dataset", lambda r: f"{r.dataset} {r.split}", lambda v: v),
    Column("encoder", lambda r: r.encoder, lambda v: f"encoder {v}"),
    Column("px", lambda r: _count(r.image_size), lambda v: f"{v} px", numeric=True),
    Column("dim", lambda r: str(r.embedding_dim), lambda v: f"{v} dimensions", numeric=True),
    Column("way", lambda r: str(r.n_way), lambda v: f"{v}-way", numeric=True),
    Column(
        "query",
        lambda r: str(r.n_query),
        lambda v: "1 query per class" if v == "1" else f"{v} queries per class",
        numeric=True,
    ),
    Column(
        "episodes",
        lambda r: f"{r.n_episodes:,}",
        lambda v: "1 episode" if v == "1" else f"{v} episodes",
        numeric=True,
    ),
    Column("sampling", lambda r: r.sampling, lambda v: f"drawn {v}"),
    Column("seed", lambda r: str(r.seed), lambda v: f"seed {v}", numeric=True),
    Column(
        "train labels",
        lambda r: _count(r.labels_used.train),
        lambda v: f"{v} labels in training",
        numeric=True,
    ),
    Column("val labels", lambda r: _count(r.labels_used.val), lambda v: f"{v} in selection", numeric=True),
    Column("transform", lambda r: r.transform, lambda v: f"transform {v}"),
    Column("shot", lambda r: str(r.n_shot), numeric=True),
    Column("classifier", lambda r: r.classifier),
    Column("accuracy %", lambda r: per_cent(r.accuracy), numeric=True),
    Column("± episodes", lambda r: per_cent(r.ci95), numeric=True),
    Column("± classes", lambda r: per_cent(r.ci95_class, r.ci95_class_reason), numeric=True),
    Column("seconds", lambda r: f"{r.seconds:.2f}", numeric=True),
)
# The columns of the report in order: what tells runs apart, the answer, what it cost, the rest.
REPORT_ORDER = (
    *("dataset", "encoder", "transform", "way", "shot", "classifier"),
    *("accuracy %", "± episodes", "± classes", "train labels", "val labels", "support labels"),
    *("px", "dim", "query", "episodes", "sampling", "seed", "store", "seconds"),
)
LABEL_COLUMNS = ("train labels", "val labels")  # in the report whether runs differ in them or not
SUPPORT_LABELS = Column("support labels", lambda r: f"{r.labels_used.support_per_episode:,}", numeric=True)
# The caption's lines: what was encoded, the episodes, the labels and the transform.
CAPTION_LINES = (
    ("store", "dataset", "encoder", "px", "dim"),
    ("way", "query", "episodes", "sampling", "seed"),
    ("train labels", "val labels", "transform"),
)


def to_table(runs: Sequence[RunSummary]) -> str:
    """Aligned columns, for a terminal."""
    return grid.to_text(results_grid(runs))


def to_markdown(runs: Sequence[RunSummary]) -> str:
    """The same as a Markdown table."""
    return grid.to_markdown(results_grid(runs))


def to_latex(runs: Sequence[RunSummary]) -> str:
    """The same for a paper, without what only matters on the machine it was made on."""
    return grid.to_latex(results_grid(runs, for_paper=True))


def results_grid(runs: Sequence[RunSummary], *, for_paper: bool = False) -> grid.Grid:
    """What all runs share in the caption, what differs in columns, and what each interval is over."""
    columns = [c for c in COLUMNS if not _is_shared(c, runs) and not (for_paper and c.heading == "seconds")]
    return grid.Grid(
        caption=caption(runs, leave_out=("store",) if for_paper else ()),
        headings=[c.heading for c in columns],
        rows=[[c.cell(run) for c in columns] for run in runs],
        numeric=[c.numeric for c in columns],
        notes=interval_notes(runs),
    )


def report_grid(runs: Sequence[RunSummary]) -> grid.Grid:
    """The same for the report, with the labels that every run used: in training, selection, an episode."""
    columns = [c for c in COLUMNS if not _is_shared(c, runs) or c.heading in LABEL_COLUMNS]
    columns.append(SUPPORT_LABELS)
    if len({run.encoder for run in runs}) == len({(run.encoder, run.store) for run in runs}):
        columns = [c for c in columns if c.heading != "store"]  # the encoder says it
    columns.sort(key=lambda c: REPORT_ORDER.index(c.heading))
    return grid.Grid(
        caption=caption(runs, leave_out=LABEL_COLUMNS),
        headings=[c.heading for c in columns],
        rows=[[c.cell(run) for c in columns] for run in runs],
        numeric=[c.numeric for c in columns],
        notes=[*interval_notes(runs), SUPPORT_NOTE],
    )


def caption(runs: Sequence[RunSummary], *, leave_out: Sequence[str] = ()) -> list[str]:
    """Lines that say what all runs have in common."""
    by_heading = {column.heading: column for column in COLUMNS}
    lines = []
    for headings in CAPTION_LINES:
        shared = [by_heading[h] for h in headings if h not in leave_out and _is_shared(by_heading[h], runs)]
        words = [c.caption(c.cell(runs[0])) for c in shared if c.caption is not None]
        if words:
            lines.append(", ".join(words))
    return lines


def interval_notes(runs: Sequence[RunSummary]) -> list[str]:
    """What each interval is over, and why some are missing or doubtful; a reason shared by many once."""
    samplings = dict.fromkeys(run.sampling for run in runs)
    over_episodes = [OVER_EPISODES.get(s, f"± episodes: 95 % interval over episodes, {s}") for s in samplings]
    reasons = [f"{mark}  {reason}" for mark, reason in dict.fromkeys(_reasons(runs))]
    return [*over_episodes, OVER_CLASSES, *reasons]


def _reasons(runs: Sequence[RunSummary]) -> Iterator[tuple[str, str]]:
    for run in runs:
        for value, reason in ((run.ci95, run.ci95_reason), (run.ci95_class, run.ci95_class_reason)):
            if reason is not None:
                yield (ABSENT if value is None else DOUBTFUL), reason


def _is_shared(column: Column, runs: Sequence[RunSummary]) -> bool:
    return column.caption is not None and len({column.cell(run) for run in runs}) == 1
