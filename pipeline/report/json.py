"""Results as the JSON that other programs read."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from fsnl.cache.schema import FORMAT_VERSION, RESULTS_FORMAT, RunSummary


def to_json(runs: Sequence[RunSummary]) -> str:
    """One object with `format`, `version` and `runs`; what does not exist is null, the reason beside it."""
    content = {"format": RESULTS_FORMAT, "version": FORMAT_VERSION, "runs": [asdict(run) for run in runs]}
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
