"""Classifiers by the names that the user gives them: built in, or of the user's own code."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from fsnl.cache.errors import ScoringError
from fsnl.cache.schema import Episodes
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.registry import build_classifier
from fsnl.pipeline.user_classifier import PREFIX, user_classifier

# For every number of shots the same, or for each n_shot its own.
Names: TypeAlias = Sequence[str] | Mapping[int, Sequence[str]]


def check_names(names: Names) -> None:
    """Refuse a wrong name; a user's file is not run for that.

    Raises:
        ScoringError: the message says what there is.
    """
    rows = names.values() if isinstance(names, Mapping) else [names]
    for name in itertools.chain.from_iterable(rows):
        if not name.startswith(PREFIX):
            build_classifier(name)


def build_classifiers(names: Names, episode_sets: Sequence[Episodes]) -> list[list[Classifier]]:
    """For each episode set, its classifiers.

    Raises:
        ScoringError: a wrong name, or more neighbours than an episode has supports.
    """
    wanted = [names[e.n_shot] if isinstance(names, Mapping) else names for e in episode_sets]
    built = {
        name: user_classifier(name) if name.startswith(PREFIX) else build_classifier(name)
        for name in dict.fromkeys(itertools.chain.from_iterable(wanted))
    }
    for episodes, row in zip(episode_sets, wanted, strict=True):
        n_supports = episodes.n_way * episodes.n_shot
        for name in row:
            if built[name].min_supports > n_supports:
                msg = (
                    f"classifier {name!r} needs {built[name].min_supports} supports, {episodes.n_way}-way "
                    f"{episodes.n_shot}-shot episodes have {n_supports}; ask for more shots, or a smaller N"
                )
                raise ScoringError(msg)
    return [[built[name] for name in row] for row in wanted]
