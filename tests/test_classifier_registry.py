"""Classifiers by name: what is built, and what is said of a name that does not exist."""

import pytest

from fsnl.cache.errors import ScoringError
from fsnl.pipeline.classifiers.registry import build_classifier


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("1nn", "1nn"),
        ("knn:5", "knn:5"),
        ("attention", "attention"),
        ("attention:1", "attention"),
        ("attention:12.5", "attention:12.5"),
        ("ridge:1.0", "ridge"),
        ("ridge:0.1", "ridge:0.1"),
        ("logistic:1e-3", "logistic:0.001"),
        ("prototype-cosine", "prototype-cosine"),
    ],
)
def test_a_classifier_is_named_in_results_by_what_it_is(given: str, name: str) -> None:
    assert build_classifier(given).name == name


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("1-nn", "no classifier '1-nn', there are 1nn, knn:N, .*did you mean 1nn?"),
        ("protoype", "did you mean prototype"),
        ("", "no classifier ''"),
        ("knn", "needed knn:N with N a whole number above 0, as in knn:5"),
        ("knn:0", "needed knn:N"),
        ("knn:-1", "needed knn:N"),
        ("knn:2.5", "needed knn:N"),
        ("attention:", "SCALE must be a number above 0, is ''"),
        ("attention:0", "SCALE must be a number above 0, is '0'"),
        ("attention:nan", "SCALE must be a number above 0"),
        ("attention:inf", "SCALE must be a number above 0"),
        ("attention:1e-7", "SCALE must be 1e-06 to 1e\\+30; use mean-cosine"),
        ("attention:1e39", "SCALE must be 1e-06 to 1e\\+30; use attention-max"),
        ("ridge:none", "LAMBDA must be a number above 0, is 'none'"),
        ("logistic:-1", "C must be a number above 0, is '-1'"),
        ("1nn:3", "1nn takes nothing after a colon"),
        ("attention-max:2", "attention-max takes nothing after a colon"),
    ],
)
def test_a_wrong_name_is_refused_with_what_there_is(given: str, reason: str) -> None:
    with pytest.raises(ScoringError, match=reason):
        build_classifier(given)
