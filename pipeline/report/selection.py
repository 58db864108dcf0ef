"""What goes into one figure: panels of runs, the leading run of each, pairs that differ in one thing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fsnl.pipeline.compare import Comparison, EpisodeAccuracies, Winner
from fsnl.pipeline.report.run_names import FIRST, distinct_names, run_words, short_names

# Runs that differ in these alone share a panel; the second, where all runs have one classifier.
WITHIN = ("shot", "classifier", "episodes", "file")
WITHIN_CLASSIFIER = ("shot", "encoder", "transform", "image size", "store", "episodes", "file")
# What a forest plot may ask about: the first three while all else of FIRST is equal, the others while all is.
FACTORS = ("encoder", "transform", "classifier", "image size", "store")
MOST_ROWS = 24
USUAL_SHOT = 5


@dataclass(frozen=True, slots=True)
class Panel:
    """Runs of one encoder, or of one classifier.

    Attributes:
        title: what tells it from other panels; what all runs have, where there is one panel.
        lines: positions of runs in order of shots, by what they are called within the panel.
    """

    title: str
    lines: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Question:
    """Pairs of runs that differ in one thing.

    Attributes:
        title: the question.
        sides: what a difference to the left and to the right of zero means.
        rows: comparisons, turned so that they fit the sides.
        labels: of the rows.
        left_out: how many more rows there were.
    """

    title: str
    sides: tuple[str, str]
    rows: list[Comparison]
    labels: list[str]
    left_out: int


def panels(runs: Sequence[EpisodeAccuracies]) -> list[Panel]:
    """Every run in one panel, panels in order of their first run."""
    words = [dict(run_words(run)) for run in runs]
    one_classifier = len({one["classifier"] for one in words}) == 1
    within = WITHIN_CLASSIFIER if one_classifier else WITHIN
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, one in enumerate(words):
        groups.setdefault(tuple(v for k, v in one.items() if k not in within), []).append(i)
    titles = distinct_names(
        [{k: v for k, v in words[group[0]].items() if k not in within} for group in groups.values()]
    )
    return [
        Panel(title, _lines(runs, words, group)) for title, group in zip(titles, groups.values(), strict=True)
    ]


def _lines(
    runs: Sequence[EpisodeAccuracies], words: Sequence[dict[str, str]], group: Sequence[int]
) -> dict[str, list[int]]:
    shared = ("shot", "episodes")
    kept = [{k: v for k, v in words[i].items() if k not in shared} for i in group]
    unique = [dict(items) for items in dict.fromkeys(tuple(one.items()) for one in kept)]
    names = distinct_names(unique)
    lines: dict[str, list[int]] = {name: [] for name in names}
    for i, one in zip(group, kept, strict=True):
        lines[names[unique.index(one)]].append(i)
    for line in lines.values():
        line.sort(key=lambda i: _shot(runs[i]))
    return lines


def best_panels(
    found: Sequence[Panel], runs: Sequence[EpisodeAccuracies], *, most: int
) -> tuple[list[Panel], list[str]]:
    """Those with the most accurate runs, in their own order, and what to say of the others."""

    def best(at: int) -> float:
        return max(float(runs[i].accuracies.mean()) for line in found[at].lines.values() for i in line)

    kept = sorted(sorted(range(len(found)), key=best, reverse=True)[:most])
    left_out = len(found) - len(kept)
    notes = [f"Of {len(found)} panels those with the most accurate runs are shown."] if left_out else []
    return [found[at] for at in kept], notes


def _shot(run: EpisodeAccuracies) -> int:
    return 0 if run.summary is None else run.summary.n_shot


def leading(panel: Panel, runs: Sequence[EpisodeAccuracies]) -> int:
    """Position of a panel's most accurate run with the usual five shots, or the number nearest to that."""
    positions = [i for line in panel.lines.values() for i in line]
    nearest = min((abs(_shot(runs[i]) - USUAL_SHOT), _shot(runs[i])) for i in positions)[1]
    return max(
        (i for i in positions if _shot(runs[i]) == nearest), key=lambda i: float(runs[i].accuracies.mean())
    )


def questions(runs: Sequence[EpisodeAccuracies], comparisons: Sequence[Comparison]) -> list[Question]:
    """One for each thing in which paired runs differ while all else is equal; else one of all paired runs.

    Of classifiers there is one for each encoder and transform, of transforms one for each encoder.
    """
    words = [run_words(run) for run in runs]
    paired = [one for one in comparisons if one.paired]
    asked = []
    for factor in FACTORS:
        groups: dict[str, list[Comparison]] = {}
        for one in paired:
            if _differ_in(words[one.a], words[one.b], factor):
                rest = [words[one.a][key] for key in FIRST if key not in (factor, "shot", "classifier")]
                groups.setdefault(" ".join(rest), []).append(one)
        names = _told_apart([words[group[0].a] for group in groups.values()], without=factor)
        asked += [
            _question(runs, group, factor, where=name)
            for group, name in zip(groups.values(), names, strict=True)
        ]
    if asked or not paired:
        return asked
    called = short_names(runs)
    labels = [f"{called[one.a]} - {called[one.b]}" for one in paired]
    sides = ("the second is better", "the first is better")
    return [_shown("every two runs", sides, paired, labels)]


def _told_apart(words: Sequence[Mapping[str, str]], *, without: str) -> list[str]:
    keys = [key for key in FIRST if key not in (without, "shot", "classifier")]
    keys = [key for key in keys if len({one[key] for one in words}) > 1]
    return [" ".join(one[key] for key in keys) for one in words]


def _differ_in(a: Mapping[str, str], b: Mapping[str, str], factor: str) -> bool:
    others = [key for key in FIRST if key != factor]
    return a.get(factor) != b.get(factor) and all(a.get(key) == b.get(key) for key in others)


def _question(
    runs: Sequence[EpisodeAccuracies], pairs: Sequence[Comparison], factor: str, *, where: str
) -> Question:
    """Each level of the factor against the one that is most accurate on average."""
    words = [run_words(run) for run in runs]
    scores: dict[str, list[float]] = {}
    for i in sorted({i for one in pairs for i in (one.a, one.b)}):
        scores.setdefault(words[i][factor], []).append(float(runs[i].accuracies.mean()))
    best = max(scores, key=lambda level: sum(scores[level]) / len(scores[level]))
    turned = [_turned(one) if words[one.a][factor] == best else one for one in pairs]
    rows = [one for one in turned if words[one.b][factor] == best]
    named = [key for key in FIRST if key != factor and len({words[one.a].get(key) for one in rows}) > 1]
    if len(scores) == 2:
        other = next(level for level in scores if level != best)
        title, sides = f"{other} against {best}", (f"{best} is better", f"{other} is better")
        named = named or ["shot"]
    else:
        title, sides = f"{factor}s against {best}", (f"{best} is better", "the other is better")
        named = [factor, *named]
    labels = [" ".join(words[one.a].get(key, "") for key in named) for one in rows]
    title = f"{title}, {where}" if where else title
    return _shown(title, sides, rows, labels)


def _shown(title: str, sides: tuple[str, str], rows: list[Comparison], labels: list[str]) -> Question:
    """Of too many rows those whose first run does best against its second."""
    kept = sorted(sorted(range(len(rows)), key=lambda i: -rows[i].difference)[:MOST_ROWS])
    return Question(
        title=title,
        sides=sides,
        rows=[rows[i] for i in kept],
        labels=[labels[i] for i in kept],
        left_out=len(rows) - len(kept),
    )


def _turned(one: Comparison) -> Comparison:
    """The same comparison, of b less a."""
    other: dict[Winner, Winner] = {"a": "b", "b": "a"}
    return replace(
        one,
        a=one.b,
        b=one.a,
        difference=-one.difference,
        wins=one.losses,
        losses=one.wins,
        on_episodes=other.get(one.on_episodes, one.on_episodes),
        on_new_classes=other.get(one.on_new_classes, one.on_new_classes),
    )
