"""Classifier names, as the user writes them, to classifiers."""

import difflib
import math
from collections.abc import Callable

from fsnl.cache.errors import ScoringError
from fsnl.pipeline.classifiers.attention import attention
from fsnl.pipeline.classifiers.attention_max import attention_max
from fsnl.pipeline.classifiers.base import Classifier
from fsnl.pipeline.classifiers.k_nearest import k_nearest
from fsnl.pipeline.classifiers.logistic import logistic
from fsnl.pipeline.classifiers.mean_cosine import mean_cosine
from fsnl.pipeline.classifiers.nearest_neighbour import nearest_neighbour
from fsnl.pipeline.classifiers.prototype import prototype
from fsnl.pipeline.classifiers.prototype_cosine import prototype_cosine
from fsnl.pipeline.classifiers.ridge import ridge

PLAIN: dict[str, Callable[[], Classifier]] = {
    "1nn": nearest_neighbour,
    "attention-max": attention_max,
    "prototype": prototype,
    "prototype-cosine": prototype_cosine,
    "mean-cosine": mean_cosine,
}
# With one number after a colon, which has a default: what it is called, and the classifier.
NUMBERED: dict[str, tuple[str, Callable[[float], Classifier]]] = {
    "attention": ("SCALE", attention),
    "ridge": ("LAMBDA", ridge),
    "logistic": ("C", logistic),
}
# Scales of cosines: below, float64 cannot tell softmax sums apart, whose order tends to that of mean-cosine;
# above, it is that of attention-max.
LEAST_SCALE, MOST_SCALE = 1e-6, 1e30
FORMS = (
    *("1nn", "knn:N", "attention[:SCALE]", "attention-max", "prototype", "prototype-cosine"),
    *("mean-cosine", "ridge[:LAMBDA]", "logistic[:C]", "python:FILE:FUNCTION"),
)


def build_classifier(name: str) -> Classifier:
    """The classifier of that name, `attention`, `attention:10`, `knn:5`, ...

    Raises:
        ScoringError: there is none, or its number is wrong; the message says what there is.
    """
    kind, colon, text = name.partition(":")
    if kind == "knn":
        return k_nearest(_neighbours(name, text))
    if kind in NUMBERED:
        called, build = NUMBERED[kind]
        number = _positive(name, text, called=called) if colon else 1.0
        if kind == "attention" and not LEAST_SCALE <= number <= MOST_SCALE:
            limit = "mean-cosine" if number < 1 else "attention-max"
            msg = f"classifier {name!r}: SCALE must be {LEAST_SCALE:g} to {MOST_SCALE:g}; use {limit}"
            raise ScoringError(msg)
        return build(number)
    if kind in PLAIN:
        if colon:
            msg = f"classifier {name!r}: {kind} takes nothing after a colon"
            raise ScoringError(msg)
        return PLAIN[kind]()
    close = difflib.get_close_matches(kind, [*PLAIN, *NUMBERED, "knn"], n=1)
    guess = f"; did you mean {close[0]}?" if close else ""
    msg = f"no classifier {name!r}, there are {', '.join(FORMS)}{guess}"
    raise ScoringError(msg)


def _neighbours(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        msg = f"classifier {name!r}: needed knn:N with N a whole number above 0, as in knn:5"
        raise ScoringError(msg)
    return int(text)


def _positive(name: str, text: str, *, called: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        msg = f"classifier {name!r}: {called} must be a number above 0, is {text!r}"
        raise ScoringError(msg)
    return value
