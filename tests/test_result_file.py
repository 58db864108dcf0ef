"""The result file: written and read again; and all three files read by a program that does not know fsnl."""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from checkout import run
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import even_labels, summary, write_store

from fsnl.cache.errors import FormatError, OccupiedError
from fsnl.cache.reader import open_store
from fsnl.cache.result_file import (
    EpisodeSet,
    ResultFile,
    StoredRun,
    count_correct,
    read_result_file,
    write_result_file,
)
from fsnl.cache.schema import RunSummary, SpentLabels
from fsnl.pipeline.cli import sample, score
from fsnl.pipeline.episodes import sample_episodes
from fsnl.pipeline.score import EpisodePlan, score_stores

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
MAYBE = st.none() | st.floats(0, 1)


@st.composite
def summaries(draw: st.DrawFn) -> RunSummary:
    """Summaries with anything in them that the JSON can hold."""
    number = st.integers(0, 2**63 - 1)
    words = ("store", "dataset", "split", "encoder", "classifier", "transform", "sampling")
    digests = ("labels_sha256", "queries_sha256", "episodes_sha256")
    counts = ("embedding_dim", "n_way", "n_shot", "n_query", "n_episodes", "seed")
    drawn: dict[str, Any] = {name: draw(WORDS) for name in words + digests}
    drawn |= {name: draw(number) for name in (*counts, "total_correct", "total_queries")}
    drawn |= {name: draw(MAYBE) for name in ("sd", "ci95", "ci95_class")}
    drawn |= {name: draw(st.none() | WORDS) for name in ("ci95_reason", "ci95_class_reason")}
    return RunSummary(
        **drawn,
        image_size=draw(st.none() | number),
        accuracy=draw(st.floats(0, 1)),
        labels_used=SpentLabels(draw(st.none() | number), draw(st.none() | number), draw(number)),
        seconds=draw(st.floats(0, 1e6)),
    )


def episode_set(
    *, n_episodes: int = 3, n_shot: int = 1, names: tuple[str, ...] = ("hen", "öwl")
) -> EpisodeSet:
    labels = even_labels(n_classes=2, n_per_class=6)
    episodes = sample_episodes(labels, n_way=2, n_shot=n_shot, n_query=4, n_episodes=n_episodes, seed=0)
    ids = tuple(f"{names[label]}/{row}" for row, label in enumerate(labels))
    return EpisodeSet(episodes, labels, names, ids, labels_sha256="ab" * 32)


def result(runs: list[RunSummary], *, seed: int = 0) -> ResultFile:
    """Those summaries, with made-up answers, on two episode sets in turn."""
    rng = np.random.default_rng(seed)
    sets = [episode_set(), episode_set(n_shot=2)]
    stored = []
    for i, one in enumerate(runs):
        predictions = rng.integers(0, 2, (3, 2, 4), dtype=np.uint8)
        stored.append(StoredRun(one, sets[i % 2].key, predictions, count_correct(predictions)))
    return ResultFile({one.key: one for one in sets}, tuple(stored))


def assert_same(actual: ResultFile, expected: ResultFile) -> None:
    assert actual.episode_sets.keys() == expected.episode_sets.keys()
    for key, one in actual.episode_sets.items():
        other = expected.episode_sets[key]
        for name in ("classes", "support", "query"):
            np.testing.assert_array_equal(getattr(one.episodes, name), getattr(other.episodes, name))
        assert one.episodes.seed == other.episodes.seed
        np.testing.assert_array_equal(one.labels, other.labels)
        assert (one.class_names, one.image_ids) == (other.class_names, other.image_ids)
        assert one.labels_sha256 == other.labels_sha256
    assert len(actual.runs) == len(expected.runs)
    for run_read, run_written in zip(actual.runs, expected.runs, strict=True):
        assert run_read.summary == run_written.summary
        assert run_read.episodes == run_written.episodes
        for name in ("predictions", "correct"):
            read, written = getattr(run_read, name), getattr(run_written, name)
            np.testing.assert_array_equal(read, written)
            assert read.dtype == written.dtype


@pytest.fixture
def scored(tiny_store: Path, tmp_path: Path) -> Path:
    """A result file of the tiny store."""
    plan = EpisodePlan(n_way=3, shots=(1, 2), n_query=4, n_episodes=20, seed=5)
    path = tmp_path / "results.h5"
    write_result_file(path, score_stores([open_store(tiny_store)], episodes=plan, classifiers=["1nn"]))
    return path


@settings(max_examples=25)
@given(st.lists(summaries(), min_size=1, max_size=3))
def test_what_is_written_is_read_again(runs: list[RunSummary]) -> None:
    content = result(runs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.h5")
        write_result_file(path, content)
        assert [entry.name for entry in Path(folder).iterdir()] == ["results.h5"]
        assert_same(read_result_file(path), content)


def test_what_was_scored_is_read_again(tiny_store: Path, tmp_path: Path) -> None:
    plan = EpisodePlan(n_way=3, shots=(1, 3), n_query=5, n_episodes=30, seed=5)
    classifiers = ["1nn", "attention", "attention-max"]
    content = score_stores([open_store(tiny_store)], episodes=plan, classifiers=classifiers)
    write_result_file(tmp_path / "results.h5", content)
    assert_same(read_result_file(tmp_path / "results.h5"), content)


def test_runs_keep_their_order_beyond_ten(tmp_path: Path) -> None:
    content = result([summary(classifier=f"number {i}") for i in range(23)])
    write_result_file(tmp_path / "results.h5", content)
    read = read_result_file(tmp_path / "results.h5")
    assert [stored.summary.classifier for stored in read.runs] == [f"number {i}" for i in range(23)]


def test_stores_of_the_same_labels_share_their_episodes(tiny_store: Path, tmp_path: Path) -> None:
    labels = even_labels(n_classes=6, n_per_class=12)
    other = write_store(tmp_path / "other.h5", np.eye(72), labels, encoder="another")
    stores = [open_store(tiny_store), open_store(other)]
    plan = EpisodePlan(n_way=3, shots=(1, 2), n_query=4, n_episodes=20)
    content = score_stores(stores, episodes=plan, classifiers=["1nn"])
    assert len(content.runs) == 4
    assert len(content.episode_sets) == 2


def test_right_answers_are_counted_per_way() -> None:
    # Way 0 was answered 0, 1, 0; way 1 was answered 1, 1, 1.
    predictions = np.array([[[0, 1, 0], [1, 1, 1]]], dtype=np.uint8)
    correct = count_correct(predictions)
    assert correct.tolist() == [[2, 3]]
    assert correct.dtype == np.uint8


def test_more_queries_than_a_byte_counts_are_counted() -> None:
    correct = count_correct(np.zeros((1, 2, 300), dtype=np.uint8))
    assert correct.tolist() == [[300, 0]]


def no_episodes(file: h5py.File) -> None:
    key = next(iter(file["episodes"]))
    del file["episodes"][key]


def other_shape(file: h5py.File) -> None:
    del file["runs/0/predictions"]
    file["runs/0/predictions"] = np.zeros((20, 3, 5), np.uint8)


def signed_answers(file: h5py.File) -> None:
    del file["runs/0/correct"]
    file["runs/0/correct"] = np.zeros((20, 3), np.int64)


def no_summary(file: h5py.File) -> None:
    del file["runs/0"].attrs["summary"]


def summary_without_accuracy(file: h5py.File) -> None:
    held = json.loads(file["runs/0"].attrs["summary"])
    del held["accuracy"]
    file["runs/0"].attrs["summary"] = json.dumps(held)


def a_run_left_out(file: h5py.File) -> None:
    del file["runs/0"]


def edited_episodes(file: h5py.File) -> None:
    group = next(iter(file["episodes"].values()))
    group["query"][...] = group["query"][()][::-1]


def answers_that_are_no_ways(file: h5py.File) -> None:
    file["runs/0/predictions"][0, 0, 0] = 9


def other_counts(file: h5py.File) -> None:
    file["runs/0/correct"][...] = 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (answers_that_are_no_ways, "run /runs/0 has answers that are no ways of its episodes"),
        (other_counts, "run /runs/0 counts other queries as correct than its answers make so"),
        (no_episodes, "names episodes .* that are not in the file"),
        (other_shape, "run /runs/0 does not fit its episodes"),
        (signed_answers, "run /runs/0 does not fit its episodes"),
        (no_summary, "run /runs/0 has a damaged summary .*attribute summary of /runs/0 is missing"),
        (summary_without_accuracy, r"run /runs/0 has a damaged summary \('accuracy'\)"),
        (a_run_left_out, "damaged result file"),
        (edited_episodes, "its episodes do not fit their episodes_sha256"),
    ],
)
def test_a_damaged_file_is_refused(damage: Any, message: str, scored: Path) -> None:
    with h5py.File(scored, "r+") as file:
        damage(file)
    with pytest.raises(FormatError, match=message) as caught:
        read_result_file(scored)
    assert str(caught.value).startswith(f"{scored}: ")


def test_what_lies_at_the_path_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    path.write_text("a diary")
    with pytest.raises(OccupiedError, match=r"diary.txt: exists already"):
        write_result_file(path, result([summary()]))
    assert path.read_text() == "a diary"
    write_result_file(path, result([summary()]), overwrite=True)
    assert len(read_result_file(path).runs) == 1


def test_a_flipped_byte_never_crashes_the_reader(scored: Path) -> None:
    whole = scored.read_bytes()
    before = read_result_file(scored)
    for position in range(0, len(whole), 503):
        scored.write_bytes(whole[:position] + bytes([whole[position] ^ 0x33]) + whole[position + 1 :])
        try:
            after = read_result_file(scored)
        except FormatError:
            continue
        assert [asdict(one.summary) for one in after.runs] == [asdict(one.summary) for one in before.runs]


@pytest.fixture
def plain(tiny_store: Path, tmp_path: Path) -> dict[str, Any]:
    """What the plain program finds in files that the commands made."""
    episodes, results = tmp_path / "episodes.h5", tmp_path / "results.h5"
    options = [*("--way", "4"), *("--shot", "3"), *("--query", "5"), *("--episodes", "200"), *("--seed", "9")]
    drawn = CliRunner().invoke(sample.main, [str(tiny_store), *options, "--out", str(episodes)])
    assert drawn.exit_code == 0, drawn.output
    classifiers = ["--classifier", "1nn", "--classifier", "attention"]
    given = ["--episodes-file", str(episodes), "--out", str(results), "--format", "json"]
    printed = CliRunner().invoke(score.main, [str(tiny_store), *classifiers, *given])
    assert printed.exit_code == 0, printed.output
    program = Path(__file__).with_name("plain_h5py_reader.py")
    done = run(sys.executable, program, tiny_store, episodes, results, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    found["printed"] = json.loads(printed.stdout)["runs"]
    return found


def test_a_program_without_fsnl_computes_the_same_accuracies(plain: dict[str, Any]) -> None:
    assert not plain["fsnl_was_imported"]
    assert [run["classifier"] for run in plain["printed"]] == ["1nn", "attention"]
    for run_printed in plain["printed"]:
        n_right = plain["n_right"][run_printed["classifier"]]
        assert run_printed["total_correct"] == n_right
        assert run_printed["total_queries"] == 200 * 4 * 5
        assert run_printed["accuracy"] == n_right / (200 * 4 * 5)
        assert 0.3 < run_printed["accuracy"] < 0.95, "neither chance nor certainty: a test that can fail"


def test_a_program_without_fsnl_finds_what_the_format_promises(plain: dict[str, Any]) -> None:
    assert plain["format"] == ["fsnl.features", 1]
    assert plain["episodes"]["format"] == ["fsnl.episodes", 1]
    assert plain["results_format"] == ["fsnl.results", 1]
    assert (plain["complete"], plain["encoder"], plain["dataset"]) == (True, "tests", "folder")
    assert plain["n_digests"] == 72
    assert plain["same_labels"]
    digest = plain["labels_sha256"]
    assert plain["stored_labels_sha256"] == digest
    episodes = plain["episodes"]
    assert episodes["stored"]["labels_sha256"] == digest
    for name in ("queries_sha256", "episodes_sha256"):
        assert episodes["stored"][name] == episodes[name]
    numbers = [episodes[name] for name in ("n_way", "n_shot", "n_query", "n_episodes", "seed")]
    assert (numbers, episodes["split"]) == ([4, 3, 5, 200, 9], "test")
    for run_stored, run_printed in zip(plain["runs"], plain["printed"], strict=True):
        assert run_stored["summary"] == run_printed
        assert run_stored["n_right"] == run_printed["total_correct"]
        assert run_stored["correct_fits"]
        assert run_stored["group"] == f"{episodes['episodes_sha256']}-{digest[:8]}"
        assert run_stored["episodes_sha256"] == episodes["episodes_sha256"]
        assert run_printed["episodes_sha256"] == episodes["episodes_sha256"]
        assert run_printed["queries_sha256"] == episodes["queries_sha256"]
        assert run_printed["labels_sha256"] == digest
