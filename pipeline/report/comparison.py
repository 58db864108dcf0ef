"""Comparisons for people: the runs, their differences, and a verdict in plain words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsnl.pipeline.compare import Comparison, EpisodeAccuracies
from fsnl.pipeline.report import grid
from fsnl.pipeline.report.run_names import differing_words, shared_words
from fsnl.pipeline.report.table import ABSENT, DOUBTFUL, per_cent
from fsnl.pipeline.statistics import episode_interval

# Where a difference over episodes holds, by how these were drawn.
HERE = {"with replacement": "on these images", "without replacement": "on images of these classes"}
OVER_EPISODES = {
    "with replacement": "± episodes: closed 95 % interval over the episodes: these images alone",
    "without replacement": "± episodes: open 95 % interval over episodes that share no image: "
    "other images of these classes too",
    "unknown": "± episodes: 95 % interval over the tasks; whether these share images is not known",
}
OVER_CLASSES = "± classes: 95 % interval over the classes (jackknife): other classes too"
SIGN = "difference: accuracy of the first run less that of the second, in percentage points"
COUNTS = "wins/ties/losses: episodes in which the first run is better, equal, worse; r: correlation over them"
UNPAIRED = "unpaired: the runs had other queries, so the interval over episodes is Welch's, and wider"


@dataclass(frozen=True, slots=True)
class Compared:
    """Runs, and every two of them that can be compared.

    Attributes:
        runs: in the order given.
        comparisons: by positions in `runs`.
    """

    runs: Sequence[EpisodeAccuracies]
    comparisons: Sequence[Comparison]


def verdict(
    comparison: Comparison,
    runs: Sequence[EpisodeAccuracies],
    *,
    names: Sequence[str] | Mapping[int, str],
) -> str:
    """What a comparison says, in plain words.

    Args:
        comparison: of two of the runs.
        runs: all of them.
        names: what to call each run, by position.
    """
    here = HERE.get(runs[comparison.a].sampling, "on these tasks")
    if comparison.on_episodes == "equal":
        return f"equal in every episode {here}"
    better = f"{names[comparison.a if comparison.difference > 0 else comparison.b]} is better"
    if comparison.on_new_classes in ("a", "b"):
        return f"{better} {here} and on new classes"
    elsewhere = comparison.on_new_classes
    if comparison.on_episodes in ("a", "b"):
        return f"{better} {here}; on new classes {elsewhere}"
    if comparison.on_episodes == elsewhere:
        return f"{elsewhere} {here} and on new classes"
    return f"{comparison.on_episodes} {here}; on new classes {elsewhere}"


def to_table(compared: Compared) -> str:
    """Runs and differences, for a terminal."""
    return "\n\n".join(grid.to_text(one) for one in _grids(compared))


def to_markdown(compared: Compared) -> str:
    """The same in Markdown."""
    return "\n\n".join(grid.to_markdown(one) for one in _grids(compared))


def to_latex(compared: Compared) -> str:
    """The same for a paper."""
    return "\n\n".join(grid.to_latex(one) for one in _grids(compared))


def _grids(compared: Compared) -> tuple[grid.Grid, grid.Grid]:
    return _runs_grid(compared.runs), differences_grid(compared)


def _runs_grid(runs: Sequence[EpisodeAccuracies]) -> grid.Grid:
    keys, words = differing_words(runs)
    rows = []
    for number, (run, cells) in enumerate(zip(runs, words, strict=True), start=1):
        known = run.summary
        rows.append(
            [
                str(number),
                *cells,
                per_cent(float(run.accuracies.mean())),
                per_cent(episode_interval(run.accuracies).half_width),
                ABSENT if known is None else per_cent(known.ci95_class, known.ci95_class_reason),
            ]
        )
    return grid.Grid(
        caption=[", ".join(shared_words(runs))],
        headings=["run", *keys, "accuracy %", "± episodes", "± classes"],
        rows=rows,
        numeric=[True, *(False for _ in keys), True, True, True],
        notes=[],
    )


def differences_grid(
    compared: Compared, *, names: Sequence[str] = (), n_tests: int | None = None
) -> grid.Grid:
    """One row per comparison.

    Args:
        compared: runs and comparisons.
        names: what to call the runs; their numbers where none are given.
        n_tests: over how many comparisons p values were corrected, where not over these.
    """
    runs, comparisons = compared.runs, compared.comparisons
    called = list(names) or [str(i + 1) for i in range(len(runs))]
    columns = [
        ("runs", [f"{called[one.a]} - {called[one.b]}" for one in comparisons]),
        ("pairing", ["paired" if one.paired else "unpaired" for one in comparisons]),
        ("difference", [f"{100 * one.difference:+.2f}" for one in comparisons]),
        ("± episodes", [per_cent(one.ci95) for one in comparisons]),
        ("± classes", [per_cent(one.ci95_class, one.ci95_class_reason) for one in comparisons]),
        ("wins/ties/losses", [_counts(one) for one in comparisons]),
        ("r", [_decimals(one.correlation, 2) for one in comparisons]),
        ("p", [_probability(one.p_holm) for one in comparisons]),
        ("p classes", [_probability(one.p_class_holm) for one in comparisons]),
        ("verdict", [verdict(one, runs, names=called) for one in comparisons]),
    ]
    if all(one.paired for one in comparisons):
        columns = [column for column in columns if column[0] != "pairing"]
    if all(one.ci95_class is None for one in comparisons):
        columns = [column for column in columns if column[0] not in ("± classes", "p classes")]
    return grid.Grid(
        caption=[],
        headings=[heading for heading, _ in columns],
        rows=list(zip(*(cells for _, cells in columns), strict=True)),
        numeric=[heading not in ("runs", "pairing", "verdict") for heading, _ in columns],
        notes=_notes(compared, n_tests=n_tests or len(comparisons)),
    )


def _notes(compared: Compared, *, n_tests: int) -> list[str]:
    samplings = dict.fromkeys(run.sampling for run in compared.runs)
    corrected = f"corrected for {n_tests:,} comparisons (Holm)"
    over_classes = any(one.ci95_class is not None for one in compared.comparisons)
    notes = [SIGN, *(OVER_EPISODES.get(s, OVER_EPISODES["unknown"]) for s in samplings)]
    if over_classes:
        notes += [
            OVER_CLASSES,
            f"p, p classes: of no difference, over episodes and over classes, {corrected}",
        ]
    else:
        notes.append(f"p: of no difference over episodes, {corrected}")
    if any(one.paired for one in compared.comparisons):
        notes.append(COUNTS)
    if not all(one.paired for one in compared.comparisons):
        notes.append(UNPAIRED)
    absent = f"{ABSENT}  " if over_classes else "no interval over classes: "
    return [*notes, *(f"{mark or absent}{reason}" for mark, reason in dict.fromkeys(_reasons(compared)))]


def _reasons(compared: Compared) -> Iterator[tuple[str, str]]:
    for one in compared.comparisons:
        if one.ci95_reason is not None:
            yield f"{ABSENT}  ", one.ci95_reason
        if one.ci95_class_reason is not None:
            yield ("" if one.ci95_class is None else f"{DOUBTFUL}  "), one.ci95_class_reason


def _counts(one: Comparison) -> str:
    return f"{one.wins:,}/{one.ties:,}/{one.losses:,}" if one.paired else ABSENT


def _decimals(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _probability(p: float | None) -> str:
    return "<0.001" if p is not None and p < 0.001 else _decimals(p, 3)
