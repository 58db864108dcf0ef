"""The episode file: index arrays and the digests that say which labels and which queries they are for."""

from dataclasses import dataclass
from pathlib import Path

import h5py

from fsnl.cache import hdf5
from fsnl.cache.errors import FormatError, MismatchError
from fsnl.cache.fingerprint import episodes_sha256, queries_sha256
from fsnl.cache.schema import EPISODES_FORMAT, Episodes, Features


@dataclass(frozen=True, slots=True)
class EpisodeFile:
    """Episodes, and the labels that they were drawn from.

    Attributes:
        episodes: the index arrays.
        split: name of the split whose rows they index.
        labels_sha256: hex digest of that split's class names, image ids and labels.
    """

    episodes: Episodes
    split: str
    labels_sha256: str


def write_episode_file(path: Path, content: EpisodeFile, *, overwrite: bool = False) -> None:
    """Write episodes to HDF5, aside and renamed.

    Raises:
        OccupiedError: something lies at `path` and `overwrite` is false.
        WriteError: no such folder, no permission, no space.
    """
    with hdf5.written_aside(path, file_format=EPISODES_FORMAT, overwrite=overwrite) as file:
        write_episode_arrays(file, content.episodes)
        hdf5.set_text(file, "split", content.split)
        hdf5.set_text(file, "labels_sha256", content.labels_sha256)


def read_episode_file(path: Path | str) -> EpisodeFile:
    """Read an episode file.

    Raises:
        FormatError: not there, not an episode file, damaged, or its arrays do not fit its digests.
    """
    path = Path(path)
    with hdf5.opened(path, file_format=EPISODES_FORMAT) as file:
        return EpisodeFile(
            episodes=read_episode_arrays(path, file),
            split=hdf5.text_attribute(file, "split"),
            labels_sha256=hdf5.text_attribute(file, "labels_sha256"),
        )


def check_fits(path: Path | str, content: EpisodeFile, features: Features, *, store: Path | str) -> None:
    """Refuse episodes that were drawn from other labels than those of `features`.

    Raises:
        MismatchError: the digests differ.
    """
    if content.labels_sha256 == features.labels_sha256:
        return
    drawn, here = content.labels_sha256[:8], features.labels_sha256[:8]
    raise MismatchError(
        Path(path),
        f"drawn from split {content.split!r} with labels {drawn}..., but split {features.split!r} of {store} "
        f"has labels {here}...; draw episodes from that store with fsnl-sample",
    )


def write_episode_arrays(group: h5py.Group, episodes: Episodes) -> None:
    """The three arrays as data sets of a group, their parameters and digests as its attributes."""
    for name in ("classes", "support", "query"):
        group.create_dataset(name, data=getattr(episodes, name), dtype="<i8")
    for name in ("n_way", "n_shot", "n_query", "n_episodes", "seed"):
        group.attrs[name] = getattr(episodes, name)
    hdf5.set_text(group, "sampler", episodes.sampler)
    hdf5.set_text(group, "sampling", episodes.sampling)
    hdf5.set_text(group, "queries_sha256", queries_sha256(episodes))
    hdf5.set_text(group, "episodes_sha256", episodes_sha256(episodes))


def read_episode_arrays(path: Path, group: h5py.Group) -> Episodes:
    """Such a group as episodes, its arrays held against the stored digest."""
    try:
        episodes = Episodes(
            classes=hdf5.read_integers(group, "classes", ndim=2),
            support=hdf5.read_integers(group, "support", ndim=3),
            query=hdf5.read_integers(group, "query", ndim=3),
            seed=int(group.attrs["seed"]),
            sampler=hdf5.text_attribute(group, "sampler"),
            sampling=hdf5.text_attribute(group, "sampling"),
        )
    except ValueError as error:
        raise FormatError(path, f"damaged episodes: {error}") from error
    if episodes_sha256(episodes) != hdf5.text_attribute(group, "episodes_sha256"):
        raise FormatError(path, "its episodes do not fit their episodes_sha256: damaged or edited")
    return episodes
