"""Classifier names to classifiers."""

import difflib

from fsnl.cache.errors import ScoringError
from fsnl.pipeline.classifiers.attention import attention
from fsnl.pipeline.classifiers.attention_max import attention_max
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.nearest_neighbour import nearest_neighbour

CLASSIFIERS = {"1nn": nearest_neighbour, "attention": attention, "attention-max": attention_max}


def build_classifier(name: str) -> Classifier:
    """The classifier of that name.

    Raises:
        ScoringError: there is none; the message lists them.
    """
    if name in CLASSIFIERS:
        return CLASSIFIERS[name]()
    close = difflib.get_close_matches(name, CLASSIFIERS, n=1)
    guess = f"; did you mean {close[0]}?" if close else ""
    msg = f"no classifier {name!r}, there are {', '.join(CLASSIFIERS)}{guess}"
    raise ScoringError(msg)
