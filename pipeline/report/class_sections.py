"""Inside the leading runs: classes, confusions, single episodes."""

from collections.abc import Sequence

import numpy as np

from fsnl.cache.result_file import EpisodeSet, StoredRun
from fsnl.cache.schema import RunSummary
from fsnl.pipeline.reanalysis import Reanalysis, hardest_pairs, reanalyse
from fsnl.pipeline.report.content import Section, Table
from fsnl.pipeline.report.grid import Grid
from fsnl.pipeline.report.plot_classes import class_bars, confusion_matrix
from fsnl.pipeline.report.table import per_cent

MOST_CONFUSED_CLASSES = 500
N_PAIRS, N_EPISODES = 8, 5

CLASSES = (
    "Of the most accurate run of each panel above, with five shots or the number nearest to that. "
    "Whiskers: 95 % interval over the episodes that hold the class, about these images."
)
CONFUSION = (
    "Of the queries of the row's class, in episodes that hold both classes, the share that was answered as "
    "the column's. Classes that are taken for each other lie side by side."
)
EXTREMES = "The episodes with the lowest and the highest accuracy, and the classes that they hold."


def class_sections(
    prefix: str, leaders: Sequence[tuple[str, StoredRun, EpisodeSet]], *, notes: Sequence[str]
) -> list[Section]:
    """Sections on classes, confusion and single episodes.

    Args:
        prefix: of the names of sections and figures.
        leaders: runs to look into, by what they are called.
        notes: what was left out.
    """
    found = [(name, run.summary, reanalyse(run, drawn), drawn) for name, run, drawn in leaders]
    return [
        Section(
            f"{prefix}classes",
            "Accuracy by class",
            [CLASSES, *notes],
            drawings=[
                class_bars(f"{prefix}classes-{i}", name, one, chance=1 / summary.n_way)
                for i, (name, summary, one, _) in enumerate(found, start=1)
            ],
        ),
        Section(
            f"{prefix}confusion",
            "Classes taken for each other",
            [CONFUSION, *notes],
            drawings=[
                confusion_matrix(f"{prefix}confusion-{i}", name, one)
                for i, (name, _, one, _) in enumerate(found, start=1)
                if len(one.class_names) <= MOST_CONFUSED_CLASSES
            ],
            tables=[
                Table(f"Hardest pairs of classes, {name}", grid)
                for name, grid in ((name, _pairs(one)) for name, _, one, _ in found)
                if grid.rows
            ],
        ),
        Section(
            f"{prefix}extremes",
            "Hardest and easiest episodes",
            [EXTREMES, *notes],
            tables=[
                Table(name, _extremes(one, drawn, summary), folded=True)
                for name, summary, one, drawn in found
            ],
        ),
    ]


def _pairs(found: Reanalysis) -> Grid:
    rows = [
        [
            found.class_names[pair.first],
            found.class_names[pair.second],
            per_cent(pair.first_as_second),
            per_cent(pair.second_as_first),
        ]
        for pair in hardest_pairs(found, n_most=N_PAIRS)
    ]
    headings = ["one class", "another", "one taken for the other %", "the other for the one %"]
    return Grid([], headings, rows, [False, False, True, True], [])


def _extremes(found: Reanalysis, drawn: EpisodeSet, summary: RunSummary) -> Grid:
    order = np.argsort(found.episode_accuracy, kind="stable").tolist()
    if len(order) > 2 * N_EPISODES:
        order = [*order[:N_EPISODES], *order[-N_EPISODES:]]
    rows = [
        [
            f"{episode:,}",
            per_cent(float(found.episode_accuracy[episode])),
            ", ".join(drawn.class_names[c] for c in drawn.episodes.classes[episode].tolist()),
        ]
        for episode in order
    ]
    return Grid([], ["episode", "accuracy %", "classes"], rows, [True, True, False], [])
