"""Results as CSV, one line per run."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fsnl.cache.schema import RunSummary


def to_csv(runs: Sequence[RunSummary]) -> str:
    """The fields of the JSON, those of `labels_used` as columns of their own; empty where null."""
    buffer = io.StringIO()
    rows = [_flat(run) for run in runs]
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().rstrip("\n")


def _flat(run: RunSummary) -> dict[str, Any]:
    row = asdict(run)
    labels = row.pop("labels_used")
    return {**row, **{f"labels_used_{name}": value for name, value in labels.items()}}
