"""Comparisons for other programs: JSON and CSV."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fsnl.cache.schema import FORMAT_VERSION
from fsnl.pipeline.compare import NO_CLASSES, EpisodeAccuracies
from fsnl.pipeline.report.comparison import Compared, verdict
from fsnl.pipeline.report.run_names import short_names
from fsnl.pipeline.statistics import episode_interval

COMPARISONS_FORMAT = "fsnl.comparisons"


def to_json(compared: Compared) -> str:
    """Runs, and comparisons that name their runs by position; what does not exist is null."""
    names = short_names(compared.runs)
    content = {
        "format": COMPARISONS_FORMAT,
        "version": FORMAT_VERSION,
        "runs": [_run_record(run, name) for run, name in zip(compared.runs, names, strict=True)],
        "comparisons": list(_records(compared)),
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)


def to_csv(compared: Compared) -> str:
    """One line per comparison, with the names of its runs; empty where the JSON has null."""
    buffer = io.StringIO()
    rows = list(_records(compared))
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().rstrip("\n")


def _run_record(run: EpisodeAccuracies, name: str) -> dict[str, Any]:
    over_episodes, known = episode_interval(run.accuracies), run.summary
    return {
        "name": name,
        "file": run.source,
        "data_set": run.data_set,
        "method": run.method,
        "sampling": run.sampling,
        "n_episodes": len(run.accuracies),
        "accuracy": float(run.accuracies.mean()),
        "sd": over_episodes.sd,
        "ci95": over_episodes.half_width,
        "ci95_reason": over_episodes.reason,
        "ci95_class": None if known is None else known.ci95_class,
        "ci95_class_reason": NO_CLASSES if known is None else known.ci95_class_reason,
        "summary": None if known is None else asdict(known),
    }


def _records(compared: Compared) -> Iterator[dict[str, Any]]:
    names = short_names(compared.runs)
    for one in compared.comparisons:
        fields = asdict(one)
        del fields["on_episodes"], fields["on_new_classes"]  # the verdict has them in words
        positions = {"a": fields.pop("a"), "b": fields.pop("b")}
        words = {"name_a": names[one.a], "name_b": names[one.b]}
        yield {**positions, **words, **fields, "verdict": verdict(one, compared.runs, names=names)}
