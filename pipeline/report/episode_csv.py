"""Accuracies of single episodes as CSV: a column per run, in the form that fsnl-compare reads."""

import csv
import io
from collections.abc import Sequence

from fsnl.pipeline.compare import EpisodeAccuracies
from fsnl.pipeline.report.run_names import run_words, short_names


def to_episode_csv(runs: Sequence[EpisodeAccuracies]) -> str:
    """One line per episode of each set of queries; shares in [0, 1], empty where a run had other queries.

    Args:
        runs: at least one.

    Returns:
        Columns `dataset` (with the first digits of the digests of labels and queries, as runs are paired
        where these agree), `episode`, and one per run.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = short_names(runs)
    writer.writerow(["dataset", "episode", *names])
    groups: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(runs):
        groups.setdefault((run.data_set, run.pairing), []).append(i)
    for (data_set, pairing), positions in groups.items():
        title = f"{run_words(runs[positions[0]])['dataset']} {data_set[:8]} {pairing[:8]}"
        columns = {i: runs[i].accuracies.tolist() for i in positions}
        for episode in range(len(runs[positions[0]].accuracies)):
            cells = [columns[i][episode] if i in columns else "" for i in range(len(runs))]
            writer.writerow([title, episode, *cells])
    return buffer.getvalue()
