"""fsnl-score as a user calls it: defaults, formats, files of episodes and of results."""

import csv
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Outcome, assert_refused, done, fsnl, fsnl_process
from stores import clusters, even_labels, write_store

from fsnl.cache.reader import open_store
from fsnl.cache.result_file import read_result_file
from fsnl.pipeline.score import EpisodePlan, score_stores

OPTIONS = ("--way", "4", "--query", "5", "--episodes", "200", "--seed", "3")


def runs_of(outcome: Outcome) -> list[dict[str, Any]]:
    content = json.loads(outcome.stdout)
    assert (content["format"], content["version"]) == ("fsnl.results", 1)
    runs: list[dict[str, Any]] = content["runs"]
    return runs


def without_time(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**run, "seconds": 0} for run in runs]


def test_by_default_it_scores_what_the_paper_does(digits_store: Path) -> None:
    outcome = done("score", digits_store, "--format", "json")
    runs = runs_of(outcome)
    assert [(run["n_shot"], run["classifier"]) for run in runs] == [
        (1, "1nn"),
        (1, "attention"),
        (5, "1nn"),
        (5, "attention"),
    ]
    for run in runs:
        assert (run["n_way"], run["n_query"], run["n_episodes"], run["seed"]) == (5, 15, 10_000, 0)
        assert (run["dataset"], run["split"], run["encoder"]) == ("digits", "test", "pixels")
        assert (run["image_size"], run["embedding_dim"]) == (8, 192)
        assert run["total_queries"] == 10_000 * 5 * 15
        assert run["accuracy"] == run["total_correct"] / run["total_queries"]
        assert 0.7 < run["accuracy"] < 0.95
        assert 0 < run["ci95"] < 0.005 < run["sd"]
    assert len({run["queries_sha256"] for run in runs}) == 1


def test_a_process_prints_a_table_on_stdout_and_nothing_else_there(tiny_store: Path, tmp_path: Path) -> None:
    outcome = fsnl_process("score", tiny_store, *OPTIONS, cwd=tmp_path)
    assert outcome.code == 0
    lines = outcome.stdout.split("\n")
    assert lines[0].startswith(f"{tiny_store}, folder test, encoder tests")
    assert "closed 95 % interval" in outcome.stdout
    body = [line.split() for line in lines if line.strip().startswith(("1 ", "5 "))]
    assert [(row[0], row[1]) for row in body] == [
        ("1", "1nn"),
        ("1", "attention"),
        ("5", "1nn"),
        ("5", "attention"),
    ]


def test_a_process_prints_json_that_a_program_can_read(tiny_store: Path, tmp_path: Path) -> None:
    outcome = fsnl_process("score", tiny_store, *OPTIONS, "--format", "json", cwd=tmp_path)
    assert len(runs_of(outcome)) == 4


def test_every_format_tells_of_the_same_runs(tiny_store: Path) -> None:
    accuracies = [
        f"{100 * run['accuracy']:.2f}"
        for run in runs_of(done("score", tiny_store, *OPTIONS, "--format", "json"))
    ]
    rows = list(csv.DictReader(io.StringIO(done("score", tiny_store, *OPTIONS, "--format", "csv").stdout)))
    assert [f"{100 * float(row['accuracy']):.2f}" for row in rows] == accuracies
    for name in ("table", "markdown"):
        text = done("score", tiny_store, *OPTIONS, "--format", name).stdout
        body = [line for line in text.split("\n") if "1nn" in line or " attention " in line]
        assert [next(a for a in accuracies if a in line) for line in body] == accuracies


def test_the_same_call_gives_the_same_twice_and_with_any_number_of_threads(
    tiny_store: Path, tmp_path: Path
) -> None:
    files, printed = [], []
    for i, more in enumerate(((), (), ("--threads", "1"), ("--threads", "2"), ("--threads", "3"))):
        files.append(tmp_path / f"{i}.h5")
        outcome = done("score", tiny_store, *OPTIONS, *more, "--format", "json", "--out", files[-1])
        printed.append(without_time(runs_of(outcome)))
    assert all(runs == printed[0] for runs in printed)
    first = read_result_file(files[0])
    for file in files[1:]:
        for run, same in zip(first.runs, read_result_file(file).runs, strict=True):
            np.testing.assert_array_equal(run.predictions, same.predictions)


def test_without_a_store_the_newest_at_home_is_scored_and_named(
    tiny_store: Path, digits_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("FSNL_HOME", str(home))
    home.mkdir()
    for stamp, store in ((1_700_000_000, digits_store), (1_700_000_100, tiny_store)):
        copy = Path(shutil.copy(store, home))
        os.utime(copy, (stamp, stamp))
    outcome = done("score", *OPTIONS, "--format", "json")
    assert f"scoring {home / 'tiny.h5'}" in outcome.stderr
    assert {run["store"] for run in runs_of(outcome)} == {str(home / "tiny.h5")}


def test_stores_are_scored_in_the_order_given_on_the_same_episodes(tiny_store: Path, tmp_path: Path) -> None:
    embeddings = clusters(n_classes=6, n_per_class=12, dim=5, spread=0.1)
    other = write_store(
        tmp_path / "other.h5", embeddings, even_labels(n_classes=6, n_per_class=12), encoder="others"
    )
    outcome = done(
        "score", other, tiny_store, *OPTIONS, "--shot", "2", "--classifier", "1nn", "--format", "json"
    )
    runs = runs_of(outcome)
    assert [run["encoder"] for run in runs] == ["others", "tests"]
    assert len({run["episodes_sha256"] for run in runs}) == 1
    assert runs[0]["accuracy"] > runs[1]["accuracy"]


def test_results_are_written_in_full(tiny_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.h5"
    printed = runs_of(done("score", tiny_store, *OPTIONS, "--format", "json", "--out", out))
    read = read_result_file(out)
    plan = EpisodePlan(n_way=4, n_query=5, n_episodes=200, seed=3)
    again = score_stores([open_store(tiny_store)], episodes=plan, classifiers=["1nn", "attention"])
    assert len(read.runs) == 4
    for run, summary, expected in zip(read.runs, printed, again.runs, strict=True):
        assert run.summary.accuracy == summary["accuracy"] == expected.summary.accuracy
        assert run.summary.seconds == summary["seconds"]
        np.testing.assert_array_equal(run.predictions, expected.predictions)
        assert int(run.correct.sum()) == summary["total_correct"]
    refused = fsnl("score", tiny_store, *OPTIONS, "--out", out)
    assert_refused(refused, r"results.h5: exists already; use another --out, or --force")
    done("score", tiny_store, *OPTIONS, "--shot", "1", "--out", out, "--force")
    assert len(read_result_file(out).runs) == 2


def test_an_episode_file_gives_the_same_as_drawing(tiny_store: Path, tmp_path: Path) -> None:
    drawn = runs_of(done("score", tiny_store, *OPTIONS, "--format", "json"))
    files: list[str | Path] = []
    for shot in ("1", "5"):
        path = tmp_path / f"{shot}.h5"
        done("sample", tiny_store, *OPTIONS, "--shot", shot, "--out", path)
        files += ["--episodes-file", path]
    outcome = done("score", tiny_store, *files, "--format", "json")
    assert without_time(runs_of(outcome)) == without_time(drawn)


@pytest.mark.parametrize("option", ["--way", "--shot", "--query", "--episodes", "--seed"])
def test_an_episode_file_says_what_these_options_say(option: str, tiny_store: Path, tmp_path: Path) -> None:
    path = tmp_path / "e.h5"
    done("sample", tiny_store, *OPTIONS, "--out", path)
    # Even the default, when it is asked for.
    defaults = {"--way": "5", "--shot": "1", "--query": "15", "--episodes": "10000", "--seed": "0"}
    outcome = fsnl("score", tiny_store, "--episodes-file", path, option, defaults[option])
    assert_refused(outcome, f"{option} cannot go with --episodes-file: the file says which episodes", code=2)


def test_another_split_is_scored_when_asked_for(tmp_path: Path) -> None:
    embeddings = clusters(n_classes=6, n_per_class=12, dim=4)
    labels = even_labels(n_classes=6, n_per_class=12)
    store = write_store(tmp_path / "val.h5", embeddings, labels, split="val")
    runs = runs_of(done("score", store, *OPTIONS, "--split", "val", "--format", "json"))
    assert {run["split"] for run in runs} == {"val"}


def test_extract_and_score_are_all_that_is_needed(tmp_path: Path) -> None:
    extracted = fsnl_process("extract", cwd=tmp_path)
    assert extracted.code == 0
    scored = fsnl_process("score", "--episodes", "100", "--format", "json", cwd=tmp_path)
    assert {run["store"] for run in runs_of(scored)} == {extracted.stdout.strip()}


def test_a_store_whose_name_is_not_utf_8_is_scored_and_recorded(tiny_store: Path, tmp_path: Path) -> None:
    store = tmp_path / os.fsdecode(b"caf\xe9.h5")
    try:
        shutil.copy(tiny_store, store)
    except OSError:
        pytest.skip("this file system takes no such name")
    out = tmp_path / "results.h5"
    outcome = fsnl_process("score", store, *OPTIONS, "--format", "json", "--out", out, cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert runs_of(outcome)[0]["store"] == str(store)
    assert read_result_file(out).runs[0].summary.store == str(store)
