"""Results as JSON, CSV, table and Markdown: every field, every null, and which interval is which."""

import csv
import io
import json
import re
from typing import Any

import pytest
from stores import summary

from fsnl.cache.schema import RunSummary, SpentLabels
from fsnl.pipeline.report.csv import to_csv
from fsnl.pipeline.report.json import to_json
from fsnl.pipeline.report.table import to_markdown, to_table

# design.md, section 3, and `ci95_reason`.
FIELDS = [
    *("store", "dataset", "split", "encoder", "embedding_dim", "image_size"),
    *("n_way", "n_shot", "n_query", "n_episodes", "seed", "sampling"),
    *("labels_sha256", "queries_sha256", "episodes_sha256", "classifier", "transform"),
    *("accuracy", "total_correct", "total_queries"),
    *("sd", "ci95", "ci95_reason", "ci95_class", "ci95_class_reason", "labels_used", "seconds"),
]
UNKNOWN = summary(
    image_size=None,
    labels_used=SpentLabels(train=None, val=None, support_per_episode=2),
    sd=None,
    ci95=None,
    ci95_reason="one episode has no spread",
)
RUNS = [
    summary(accuracy=0.50126, ci95=0.00213, ci95_class=0.031, ci95_class_reason=None),
    summary(n_shot=5, classifier="attention", accuracy=0.7, ci95=0.002, labels_used=SpentLabels(0, 0, 10)),
]


def test_json_has_exactly_the_fields_of_the_contract() -> None:
    content = json.loads(to_json(RUNS))
    assert (content["format"], content["version"]) == ("fsnl.results", 1)
    assert list(content) == ["format", "version", "runs"]
    for run in content["runs"]:
        assert sorted(run) == sorted(FIELDS)
        assert list(run["labels_used"]) == ["train", "val", "support_per_episode"]
    assert content["runs"][0]["accuracy"] == 0.50126
    assert content["runs"][1]["labels_used"]["support_per_episode"] == 10


def test_what_does_not_exist_is_null_in_json_with_the_reason_beside_it() -> None:
    (run,) = json.loads(to_json([UNKNOWN]))["runs"]
    assert (run["sd"], run["ci95"], run["ci95_reason"]) == (None, None, "one episode has no spread")
    assert (run["ci95_class"], run["ci95_class_reason"]) == (None, "two classes")
    assert (run["labels_used"]["train"], run["labels_used"]["val"]) == (None, None)
    assert run["image_size"] is None


def test_json_never_holds_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json([summary(accuracy=float("nan"))])


def test_json_keeps_names_readable() -> None:
    assert "über.h5" in to_json([summary(store="über.h5")])


def rows_of_csv(runs: list[RunSummary]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(runs))))


def test_csv_has_the_fields_of_the_json_and_a_line_for_each_run() -> None:
    rows = rows_of_csv(RUNS)
    assert len(rows) == 2
    spent = ["labels_used_train", "labels_used_val", "labels_used_support_per_episode"]
    assert sorted(rows[0]) == sorted([name for name in FIELDS if name != "labels_used"] + spent)
    assert float(rows[0]["accuracy"]) == 0.50126
    assert [row["classifier"] for row in rows] == ["1nn", "attention"]
    assert [row["labels_used_support_per_episode"] for row in rows] == ["2", "10"]


def test_csv_is_empty_where_json_is_null() -> None:
    (row,) = rows_of_csv([UNKNOWN])
    for name in ("sd", "ci95", "ci95_class", "image_size", "labels_used_train", "labels_used_val"):
        assert row[name] == "", name
    assert row["ci95_reason"] == "one episode has no spread"


@pytest.mark.parametrize("name", ["a, b.h5", 'say "hi".h5', "über.h5", "two\nlines.h5"])
def test_csv_gives_any_name_back(name: str) -> None:
    (row,) = rows_of_csv([summary(store=name)])
    assert row["store"] == name


def table_of(text: str) -> list[dict[str, str]]:
    """The body of a table: cells by heading. Columns are two blanks or more apart."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if "accuracy %" in line)
    headings = re.split(r"\s{2,}", lines[start].strip())
    body = lines[start + 1 : lines.index("", start)]
    return [dict(zip(headings, re.split(r"\s{2,}", line.strip()), strict=True)) for line in body]


def markdown_of(text: str) -> list[dict[str, str]]:
    """The same of a Markdown table."""
    lines = [line for line in text.split("\n") if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    headings, rule, *body = cells
    assert all(re.fullmatch(r"-{3,}:?", dashes) for dashes in rule)
    return [dict(zip(headings, row, strict=True)) for row in body]


@pytest.mark.parametrize(("write", "read"), [(to_table, table_of), (to_markdown, markdown_of)])
def test_tables_show_per_cent_and_a_line_for_each_run(write: Any, read: Any) -> None:
    rows = read(write(RUNS))
    assert [row["shot"] for row in rows] == ["1", "5"]
    assert [row["classifier"] for row in rows] == ["1nn", "attention"]
    assert [row["accuracy %"] for row in rows] == ["50.13", "70.00"]
    assert [row["± episodes"] for row in rows] == ["0.21", "0.20"]
    assert [row["± classes"] for row in rows] == ["3.10", "-"]


@pytest.mark.parametrize("write", [to_table, to_markdown])
def test_tables_say_what_each_interval_is_over(write: Any) -> None:
    text = write(RUNS)
    assert "closed 95 % interval over the episodes" in text
    assert "95 % interval over the classes" in text
    assert "two classes" in text, "why one is missing"


@pytest.mark.parametrize("write", [to_table, to_markdown])
def test_what_all_runs_share_is_said_once_above(write: Any) -> None:
    text = write(RUNS)
    head = text.split("shot")[0]
    for words in (
        "a.h5",
        "folder test",
        "encoder tests",
        "32 px",
        "2-way",
        "4 queries",
        "3 episodes",
        "seed 0",
    ):
        assert words in head, words
        assert text.count(words) == 1, words


def test_what_differs_between_runs_is_a_column() -> None:
    rows = table_of(to_table([summary(), summary(store="b.h5", encoder="others", seed=1)]))
    assert [row["store"] for row in rows] == ["a.h5", "b.h5"]
    assert [row["encoder"] for row in rows] == ["tests", "others"]
    assert [row["seed"] for row in rows] == ["0", "1"]


@pytest.mark.parametrize("write", [to_table, to_markdown])
def test_unknown_labels_are_unknown_and_not_zero(write: Any) -> None:
    text = write([UNKNOWN])
    assert "unknown labels in training, unknown in selection" in text
    assert "0 labels" not in text
    assert "unknown px" in text
    assert "one episode has no spread" in text


def test_columns_are_aligned_whatever_the_names() -> None:
    text = to_table([summary(store="a.h5"), summary(store="a-long-name.h5", classifier="attention-max")])
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if "accuracy %" in line)
    ends = {
        line.rindex(value) + len(value)
        for line, value in zip(lines[start + 1 :], ["0.10", "0.10"], strict=False)
    }
    assert ends == {len(lines[start])}


def test_a_bar_in_a_name_does_not_break_markdown() -> None:
    text = to_markdown([summary(store="a|b.h5"), summary(store="c.h5")])
    assert markdown_of(text)[0]["store"] == r"a\|b.h5"
