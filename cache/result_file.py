"""The result file: each run's predictions and their episodes, all that re-analysis needs without features."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fsnl.cache import hdf5
from fsnl.cache.arrays import I64, Unsigned
from fsnl.cache.episode_file import read_episode_arrays, write_episode_arrays
from fsnl.cache.errors import FormatError
from fsnl.cache.fingerprint import episodes_sha256
from fsnl.cache.schema import RESULTS_FORMAT, Episodes, Json, RunSummary, SpentLabels


@dataclass(frozen=True, slots=True)
class EpisodeSet:
    """Episodes together with the labels of the split that they index.

    Attributes:
        episodes: the index arrays.
        labels: (N,) int64, class of each row.
        class_names: C names.
        image_ids: N names.
        labels_sha256: hex digest of the three.
    """

    episodes: Episodes
    labels: I64
    class_names: tuple[str, ...]
    image_ids: tuple[str, ...]
    labels_sha256: str

    @property
    def key(self) -> str:
        """Name of its group in a result file."""
        return f"{episodes_sha256(self.episodes)}-{self.labels_sha256[:8]}"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run as it lies in a result file.

    Attributes:
        summary: the record that `fsnl-score --format json` prints.
        episodes: key of its episode set.
        predictions: (E, W, Q) unsigned, the way that was answered for each query.
        correct: (E, W) unsigned, right answers among the Q queries of each way.
    """

    summary: RunSummary
    episodes: str
    predictions: Unsigned
    correct: Unsigned


@dataclass(frozen=True, slots=True)
class ResultFile:
    """What a result file holds.

    Attributes:
        episode_sets: by key.
        runs: in the order they were asked for.
    """

    episode_sets: Mapping[str, EpisodeSet]
    runs: tuple[StoredRun, ...]


def write_result_file(path: Path, content: ResultFile, *, overwrite: bool = False) -> None:
    """Write runs and their episodes to HDF5, aside and renamed.

    Raises:
        OccupiedError: something lies at `path` and `overwrite` is false.
        WriteError: no such folder, no permission, no space.
    """
    with hdf5.written_aside(path, file_format=RESULTS_FORMAT, overwrite=overwrite) as file:
        sets = file.create_group("episodes")
        for key, episode_set in content.episode_sets.items():
            _write_episode_set(sets.create_group(key), episode_set)
        groups = file.create_group("runs")
        for number, run in enumerate(content.runs):
            group = groups.create_group(str(number))
            hdf5.set_json(group, "summary", asdict(run.summary))
            hdf5.set_text(group, "episodes", run.episodes)
            group.create_dataset("predictions", data=run.predictions)
            group.create_dataset("correct", data=run.correct)


def read_result_file(path: Path | str) -> ResultFile:
    """Read a result file.

    Raises:
        FormatError: not there, not a result file, or damaged.
    """
    path = Path(path)
    with hdf5.opened(path, file_format=RESULTS_FORMAT) as file:
        sets = {name: _read_episode_set(path, group) for name, group in file["episodes"].items()}
        groups = file["runs"]
        runs = tuple(_read_run(path, groups[str(number)], sets) for number in range(len(groups)))
    return ResultFile(episode_sets=sets, runs=runs)


def count_correct(predictions: Unsigned) -> Unsigned:
    """Right answers per way: (E, W, Q) ways answered -> (E, W), in the smallest unsigned type.

    Inside an episode the label is the way, so a query is right where its answer is its own position.
    """
    n_way, n_query = predictions.shape[1:]
    right = predictions == np.arange(n_way, dtype=predictions.dtype)[:, None]
    correct: Unsigned = right.sum(axis=2, dtype=np.min_scalar_type(n_query))
    return correct


def _write_episode_set(group: h5py.Group, episode_set: EpisodeSet) -> None:
    write_episode_arrays(group, episode_set.episodes)
    hdf5.set_text(group, "labels_sha256", episode_set.labels_sha256)
    group.create_dataset("labels", data=episode_set.labels, dtype="<i8")
    hdf5.write_texts(group, "class_names", episode_set.class_names)
    hdf5.write_texts(group, "image_ids", episode_set.image_ids)


def _read_episode_set(path: Path, group: h5py.Group) -> EpisodeSet:
    return EpisodeSet(
        episodes=read_episode_arrays(path, group),
        labels=hdf5.read_integers(group, "labels", ndim=1),
        class_names=hdf5.read_texts(group, "class_names"),
        image_ids=hdf5.read_texts(group, "image_ids"),
        labels_sha256=hdf5.text_attribute(group, "labels_sha256"),
    )


def _read_run(path: Path, group: h5py.Group, sets: Mapping[str, EpisodeSet]) -> StoredRun:
    key = hdf5.text_attribute(group, "episodes")
    if key not in sets:
        raise FormatError(path, f"run {group.name} names episodes {key[:12]}... that are not in the file")
    episodes = sets[key].episodes
    predictions, correct = group["predictions"][()], group["correct"][()]
    fits = predictions.shape == episodes.query.shape and correct.shape == episodes.classes.shape
    if not fits or predictions.dtype.kind != "u" or correct.dtype.kind != "u":
        raise FormatError(path, f"run {group.name} does not fit its episodes")
    if predictions.size and predictions.max() >= predictions.shape[1]:
        raise FormatError(path, f"run {group.name} has answers that are no ways of its episodes")
    if not np.array_equal(correct, count_correct(predictions)):
        raise FormatError(path, f"run {group.name} counts other queries as correct than its answers make so")
    try:
        summary = _summary(hdf5.json_attribute(group, "summary"))
    except (TypeError, KeyError) as error:
        raise FormatError(path, f"run {group.name} has a damaged summary ({error})") from error
    return StoredRun(summary=summary, episodes=key, predictions=predictions, correct=correct)


def _summary(data: Json) -> RunSummary:
    """A summary from its JSON; keys that a later fsnl of the same format version added are left out."""
    if not isinstance(data, dict):
        msg = "summary is not an object"
        raise TypeError(msg)
    known: dict[str, Any] = {field.name: data[field.name] for field in fields(RunSummary)}
    return RunSummary(**{**known, "labels_used": SpentLabels(**known["labels_used"])})
