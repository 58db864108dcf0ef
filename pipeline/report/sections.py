"""What a report holds, before it is drawn: for every data set its figures and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fsnl.cache.result_file import EpisodeSet, ResultFile, StoredRun
from fsnl.cache.schema import Features
from fsnl.pipeline.compare import Comparison, EpisodeAccuracies, accuracies_of, compare
from fsnl.pipeline.report.class_sections import class_sections
from fsnl.pipeline.report.comparison import Compared, differences_grid, verdict
from fsnl.pipeline.report.content import Chapter, Section, Table
from fsnl.pipeline.report.plot_accuracy import (
    MOST_LINES,
    MOST_ROWS,
    accuracy_limits,
    against_shots,
    episode_distributions,
)
from fsnl.pipeline.report.plot_differences import forest
from fsnl.pipeline.report.plot_map import embedding_map
from fsnl.pipeline.report.run_names import distinct_names, run_words, short_names
from fsnl.pipeline.report.selection import Panel, best_panels, leading, panels, questions

MOST_COMPARISONS = 500
MOST_PANELS, MOST_CLASS_PANELS = 6, 4
MOST_QUESTIONS = 8

SHOTS = (
    "Dark band: 95 % interval over episodes, about these images (often thinner than the line). "
    "Light band: over classes, about new ones."
)
DIFFERENCES = (
    "Of runs that answered the same queries. Thick: 95 % interval over episodes, about these images. Thin: "
    "over classes. Colour: a difference on these images, after Holm's correction over all comparisons of the "
    "report; filled: on new classes too; grey: undecided."
)
EPISODES = "How far single episodes lie apart: why one needs many, and why comparisons are paired."
MAPS = "Principal components of the stored embeddings; a circle is the median of a class."


@dataclass(frozen=True, slots=True)
class _Scored:
    """Runs of one data set, by the same positions everywhere."""

    prefix: str
    runs: Sequence[EpisodeAccuracies]
    stored: Sequence[tuple[StoredRun, EpisodeSet]]
    comparisons: Sequence[Comparison]
    n_tests: int  # comparisons in the whole report, over which p values are corrected
    panels: Sequence[Panel]


def chapters(results: Mapping[str, ResultFile], maps: Sequence[tuple[str, Features]]) -> list[Chapter]:
    """One chapter per data set, in the order of the runs.

    Args:
        results: result files by the path they were read from.
        maps: embeddings to be mapped, by what they are called; each belongs to the data set of its labels.
    """
    runs = [run for path, content in results.items() for run in accuracies_of(content, source=path)]
    stored = [
        (run, content.episode_sets[run.episodes]) for content in results.values() for run in content.runs
    ]
    comparisons = compare(runs)
    keys = list(dict.fromkeys(run.data_set for run in runs))
    found = []
    for number, key in enumerate(keys, start=1):
        positions = [i for i, run in enumerate(runs) if run.data_set == key]
        place = {position: i for i, position in enumerate(positions)}
        own = [runs[i] for i in positions]
        scored = _Scored(
            prefix=f"data{number}-" if len(keys) > 1 else "",
            runs=own,
            stored=[stored[i] for i in positions],
            comparisons=[
                replace(one, a=place[one.a], b=place[one.b]) for one in comparisons if one.a in place
            ],
            n_tests=len(comparisons),
            panels=panels(own),
        )
        found.append(_chapter(scored, [one for one in maps if one[1].labels_sha256 == key]))
    return found


def _chapter(scored: _Scored, maps: Sequence[tuple[str, Features]]) -> Chapter:
    first = run_words(scored.runs[0])
    shown, notes = best_panels(scored.panels, scored.runs, most=MOST_CLASS_PANELS)
    leaders = []
    for panel in shown:
        position = leading(panel, scored.runs)
        name = f"{panel.title} {run_words(scored.runs[position])['shot']} {scored.runs[position].method}"
        leaders.append((name.strip(), *scored.stored[position]))
    sections = [
        *_shot_section(scored),
        *_difference_section(scored),
        *class_sections(scored.prefix, leaders, notes=notes),
        _episode_section(scored),
        *_map_section(scored, maps),
    ]
    return Chapter(first["dataset"], _verdicts(scored), sections)


def _verdicts(scored: _Scored) -> list[str]:
    """For each number of ways and shots the most accurate run, and how surely it is ahead of the next."""
    words = [dict(run_words(run)) for run in scored.runs]
    kinds: dict[str, list[int]] = {}
    for i, one in enumerate(words):
        kinds.setdefault(f"{one.pop('way')} {one.pop('shot')}", []).append(i)
    by_pair = {(one.a, one.b): one for one in scored.comparisons}
    found = []
    for kind, positions in kinds.items():
        names = dict(zip(positions, distinct_names([words[i] for i in positions]), strict=True))
        ranked = sorted(positions, key=lambda i: -float(scored.runs[i].accuracies.mean()))
        said = [f"{names[i]} {100 * scored.runs[i].accuracies.mean():.2f} %" for i in ranked[:2]]
        sentence = f"{kind}: {', then '.join(said)}"
        if len(ranked) > 1:
            a, b = sorted(ranked[:2])
            sentence += f"; {verdict(by_pair[a, b], scored.runs, names=names)}"
        found.append(f"{sentence}.")
    return found


def _shot_section(scored: _Scored) -> list[Section]:
    """Accuracy against shots, where there are several numbers of them."""
    summaries = [run.summary for run in scored.runs if run.summary is not None]
    if len({summary.n_shot for summary in summaries}) < 2:
        return []
    limits = accuracy_limits(summaries)
    shown, notes = best_panels(scored.panels, scored.runs, most=MOST_PANELS)
    drawings = []
    for i, panel in enumerate(shown, start=1):
        lines = {
            name: [summaries[at] for at in line] for name, line in list(panel.lines.items())[:MOST_LINES]
        }
        if len(panel.lines) > MOST_LINES:
            notes.append(f"{panel.title}: {len(panel.lines) - MOST_LINES} more lines are left out.")
        drawings.append(against_shots(f"{scored.prefix}shots-{i}", panel.title, lines, limits=limits))
    return [Section(f"{scored.prefix}shots", "Accuracy against shots", [SHOTS, *notes], drawings)]


def _difference_section(scored: _Scored) -> list[Section]:
    if not scored.comparisons:
        return []
    notes, drawings = [], []
    all_asked = questions(scored.runs, scored.comparisons)
    if len(all_asked) > MOST_QUESTIONS:
        notes.append(f"{len(all_asked) - MOST_QUESTIONS} more figures are left out.")
    for i, asked in enumerate(all_asked[:MOST_QUESTIONS], start=1):
        name = f"{scored.prefix}differences-{i}"
        drawings.append(forest(name, asked.title, asked.rows, labels=asked.labels, sides=asked.sides))
        if asked.left_out:
            notes.append(f"{asked.title}: {asked.left_out} more comparisons are left out.")
    if drawings:
        notes.insert(0, DIFFERENCES)
    tables = []
    if len(scored.comparisons) <= MOST_COMPARISONS:
        grid = differences_grid(
            Compared(scored.runs, scored.comparisons), names=short_names(scored.runs), n_tests=scored.n_tests
        )
        title = (
            "The comparison" if len(scored.comparisons) == 1 else f"All {len(scored.comparisons)} comparisons"
        )
        tables.append(Table(title, grid, folded=True))
    else:
        notes.append(f"fsnl-compare lists all {len(scored.comparisons):,} comparisons.")
    return [Section(f"{scored.prefix}differences", "Differences", notes, drawings, tables)]


def _episode_section(scored: _Scored) -> Section:
    shown, notes = best_panels(scored.panels, scored.runs, most=MOST_PANELS)
    drawings = []
    for i, panel in enumerate(shown, start=1):
        rows = {
            f"{run_words(scored.runs[at])['shot']} {line}": scored.runs[at]
            for line, positions in panel.lines.items()
            for at in positions
        }
        kept = dict(sorted(rows.items(), key=lambda row: _shots(row[1]))[:MOST_ROWS])
        if len(rows) > MOST_ROWS:
            notes.append(f"{panel.title}: {len(rows) - MOST_ROWS} more runs are left out.")
        drawings.append(episode_distributions(f"{scored.prefix}episodes-{i}", panel.title, kept))
    return Section(f"{scored.prefix}episodes", "Single episodes", [EPISODES, *notes], drawings)


def _shots(run: EpisodeAccuracies) -> int:
    return 0 if run.summary is None else run.summary.n_shot


def _map_section(scored: _Scored, maps: Sequence[tuple[str, Features]]) -> list[Section]:
    if not maps:
        return []
    drawings = [
        embedding_map(f"{scored.prefix}map-{i}", name, features)
        for i, (name, features) in enumerate(maps, start=1)
    ]
    return [Section(f"{scored.prefix}maps", "Maps of the embeddings", [MAPS], drawings)]
