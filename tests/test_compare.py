"""Differences of runs: against SciPy and hand-worked numbers, published ones, and as a user meets them."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import REAL_DATA, run
from hypothesis import given
from hypothesis import strategies as st
from results import Images, Made, make_results, write_results
from scipy import stats

from fsnl.cache.arrays import F64
from fsnl.cache.errors import FormatError
from fsnl.pipeline.compare import Comparison, EpisodeAccuracies, accuracies_of, compare
from fsnl.pipeline.differences import paired_difference, unpaired_difference
from fsnl.pipeline.report.comparison import verdict
from fsnl.pipeline.report.run_names import short_names
from fsnl.pipeline.statistics import class_interval, holm
from fsnl.pipeline.task_accuracies import read_task_accuracies

shares = st.lists(st.integers(0, 75), min_size=3, max_size=40)


def published(accuracies: F64, *, data_set: str = "", method: str = "m") -> EpisodeAccuracies:
    return EpisodeAccuracies(
        source="x.json",
        method=method,
        data_set=data_set,
        pairing=f"{len(accuracies)} tasks",
        sampling="unknown",
        accuracies=accuracies,
        classes=None,
        summary=None,
    )


def made(*runs: Made, images: Images | None = None) -> list[EpisodeAccuracies]:
    return accuracies_of(make_results(runs, images=images), source="results.h5")


def the_only(runs: list[EpisodeAccuracies]) -> Comparison:
    (comparison,) = compare(runs)
    return comparison


# The two differences


@given(shares, st.randoms(use_true_random=False))
def test_a_paired_difference_is_scipys_paired_t(counts: list[int], random: Any) -> None:
    a = np.array(counts) / 75
    b = np.array([random.randint(0, 75) for _ in counts]) / 75
    found, expected = paired_difference(a, b), stats.ttest_rel(a, b)
    low, high = expected.confidence_interval(0.95)
    if np.isnan(expected.pvalue):  # equal in every episode
        assert (found.half_width, found.p) == (0, 1)
        return
    assert found.difference == pytest.approx((low + high) / 2)
    assert found.half_width == pytest.approx((high - low) / 2)
    assert found.p == pytest.approx(expected.pvalue, abs=1e-12)


@given(shares, shares)
def test_an_unpaired_difference_is_scipys_welch_t(first: list[int], second: list[int]) -> None:
    a, b = np.array(first) / 75, np.array(second) / 75
    found = unpaired_difference(a, b)
    if a.std() == b.std() == 0:
        assert found.half_width == 0
        return
    expected = stats.ttest_ind(a, b, equal_var=False)
    low, high = expected.confidence_interval(0.95)
    assert found.half_width == pytest.approx((high - low) / 2)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.wins, found.ties, found.losses, found.correlation) == (None, None, None, None)


def test_a_paired_difference_by_hand() -> None:
    # Differences 0.1, 0, 0.2, -0.1: mean 0.05, sum of squares about it 0.05, variance 0.05 / 3, so the
    # standard error is sqrt(0.05 / 12) = 0.0645497, and t(3) = 3.182446.
    found = paired_difference(np.array([0.5, 0.5, 0.6, 0.4]), np.array([0.4, 0.5, 0.4, 0.5]))
    assert found.difference == pytest.approx(0.05)
    assert found.half_width == pytest.approx(3.182446 * 0.0645497, rel=1e-5)
    assert (found.wins, found.ties, found.losses) == (2, 1, 1)


@given(shares)
def test_the_correlation_is_numpys_and_absent_where_a_run_is_constant(counts: list[int]) -> None:
    a, b = np.array(counts) / 75, np.linspace(0.1, 0.9, len(counts))
    found = paired_difference(a, b).correlation
    if len(set(counts)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert paired_difference(np.full(9, 0.7), np.full(9, 0.7)).correlation is None


def test_holms_correction_by_hand() -> None:
    # Smallest of four times 4, next times 3, and never below the one before: 0.02 * 2 = 0.04 stays 0.045.
    assert holm([0.04, 0.01, 0.015, 0.02]) == pytest.approx([0.045, 0.04, 0.045, 0.045])
    assert holm([0.9, None, 0.8]) == [1.0, None, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_only_raises_p_and_keeps_their_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    pairs = [(p, c) for p, c in zip(p_values, corrected, strict=True) if c is not None]
    assert len(pairs) == len(p_values)
    assert all(p <= c <= min(1, len(p_values) * p) + 1e-15 for p, c in pairs)
    assert [c for _, c in sorted(pairs)] == sorted(c for _, c in pairs)


# Runs


def test_runs_of_two_encoders_two_classifiers_and_two_shots_are_paired() -> None:
    runs = made(Made(), Made(encoder="net-b"), Made(classifier="attention"), Made(n_shot=5))
    comparisons = compare(runs)
    assert [(one.a, one.b) for one in comparisons] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert all(one.paired for one in comparisons)


def test_the_class_interval_of_a_difference_is_the_jackknife_of_the_differences() -> None:
    runs = made(Made(), Made(classifier="attention", skill=0.55))
    classes = runs[0].classes
    assert classes is not None
    expected = class_interval(runs[0].accuracies - runs[1].accuracies, classes)
    found = the_only(runs)
    assert found.ci95_class == pytest.approx(expected.half_width)
    assert found.ci95_class_reason == expected.reason


def test_a_paired_interval_is_narrower_than_an_unpaired_one() -> None:
    first, second = made(Made(), Made(classifier="attention", skill=0.55))
    welch = unpaired_difference(first.accuracies, second.accuracies).half_width
    found = the_only([first, second])
    assert found.ci95 is not None
    assert welch is not None
    assert found.ci95 < 0.5 * welch


@pytest.mark.parametrize(
    "other", [Images(seed=1), Images(n_query=10), Images(n_way=3), Images(without_replacement=True)]
)
def test_runs_on_other_queries_of_the_same_images_are_unpaired(other: Images) -> None:
    first, second = made(Made()) + made(Made(), images=other)
    found = the_only([first, second])
    assert not found.paired
    assert found.wins is None
    assert found.ci95 == unpaired_difference(first.accuracies, second.accuracies).half_width
    assert found.ci95_class is not None, "the classes are the same, so leaving one out of both is possible"


def test_a_class_in_every_episode_of_either_run_leaves_no_class_interval() -> None:
    all_of_them = Images(n_classes=5, n_way=5)
    some_of_them = Images(n_classes=5, n_way=3)
    for images in ((all_of_them, some_of_them), (some_of_them, all_of_them)):
        found = the_only(made(Made(), images=images[0]) + made(Made(), images=images[1]))
        assert found.ci95_class is None
        assert found.ci95_class_reason is not None
        assert "every class is in every episode" in found.ci95_class_reason


def test_runs_on_other_images_are_not_compared() -> None:
    assert compare(made(Made()) + made(Made(), images=Images(n_per_class=41))) == []


def test_one_episode_gives_a_difference_and_no_more() -> None:
    found = the_only(made(Made(), Made(classifier="attention", skill=0.9), images=Images(n_episodes=1)))
    assert (found.ci95, found.p, found.p_holm, found.ci95_class) == (None, None, None, None)
    assert found.ci95_reason == "one episode has no spread"
    assert found.on_episodes == "unknown"


def test_a_run_compared_with_itself_is_equal_in_every_episode() -> None:
    runs = made(Made(), Made())
    found = the_only(runs)
    assert (found.difference, found.ci95, found.p) == (0, 0, 1)
    assert verdict(found, runs, names=["A", "B"]) == "equal in every episode on these images"
    assert short_names(runs) == ["1nn", "1nn (2)"]


def test_swapping_two_runs_mirrors_the_comparison() -> None:
    a, b = made(Made(), Made(classifier="attention", skill=0.55))
    ab, ba = the_only([a, b]), the_only([b, a])
    assert ba.difference == -ab.difference
    assert (ba.wins, ba.ties, ba.losses) == (ab.losses, ab.ties, ab.wins)
    assert ba.ci95 == pytest.approx(ab.ci95)
    assert ba.ci95_class == pytest.approx(ab.ci95_class)
    assert {ab.on_episodes, ba.on_episodes} == {"a", "b"}


# The verdict


@pytest.mark.parametrize(
    ("skill", "images", "expected"),
    [
        (0.30, Images(n_episodes=2_000), "A is better on these images and on new classes"),
        (0.70, Images(n_episodes=2_000), "B is better on these images and on new classes"),
        (0.30, Images(n_classes=5), "A is better on these images; on new classes unknown"),
        (0.50, Images(n_classes=5, n_episodes=30), "undecided on these images; on new classes unknown"),
        (
            0.10,
            Images(n_classes=30, without_replacement=True),
            "A is better on images of these classes and on new classes",
        ),
    ],
)
def test_the_verdict_is_in_plain_words(skill: float, images: Images, expected: str) -> None:
    runs = made(Made(classifier="one"), Made(classifier="another", skill=skill), images=images)
    assert verdict(the_only(runs), runs, names=["A", "B"]) == expected


def test_a_difference_in_one_class_alone_is_undecided_on_new_classes() -> None:
    # b is better by 0.3 wherever class 0 takes part, and equal elsewhere.
    runs = made(Made(), images=Images(n_classes=20, n_episodes=2_000))
    classes = runs[0].classes
    assert classes is not None
    better = EpisodeAccuracies(
        **{
            **{name: getattr(runs[0], name) for name in EpisodeAccuracies.__slots__},
            "accuracies": runs[0].accuracies + 0.3 * (classes == 0).any(axis=1),
        }
    )
    runs.append(better)
    found = verdict(the_only(runs), runs, names=["A", "B"])
    assert found == "B is better on these images; on new classes undecided"


def test_the_correction_is_over_all_comparisons() -> None:
    # Twelve runs that do not differ but by chance: of 66 p values some are below 0.05, and none after that.
    random = np.random.default_rng(2)
    comparisons = compare([published(random.integers(0, 76, 50) / 75, method=f"m{i}") for i in range(12)])
    assert len(comparisons) == 66
    assert [one.p_holm for one in comparisons] == holm([one.p for one in comparisons])
    assert any(one.p is not None and one.p < 0.05 for one in comparisons)
    assert {one.on_episodes for one in comparisons} == {"undecided"}


# Names


def test_a_name_says_what_differs_and_no_more() -> None:
    assert short_names(made(Made(), Made(n_shot=5))) == ["1-shot", "5-shot"]
    assert short_names(made(Made(), Made(encoder="net-b", n_shot=5))) == ["net-a 1-shot", "net-b 5-shot"]
    same_but_for_store = made(Made(), Made(store="b.h5"))
    assert short_names(same_but_for_store) == ["a.h5", "b.h5"]


# Published accuracies


def test_the_published_differences_are_reproduced() -> None:
    file = REAL_DATA / "task-accuracies" / "dinov2.json"
    if not file.exists():
        pytest.skip(f"needs {file}")
    runs = read_task_accuracies(file)
    place = {(run.data_set, run.method): i for i, run in enumerate(runs)}
    found = {(one.a, one.b): one for one in compare(runs)}
    for data_set, expected in {
        "mscoco": [81.75, 0.44, 81.38, 0.45, 0.37, 0.19],
        "aircraft": [72.71, 6.23, 71.71, 6.90, 1.00, 1.67],
    }.items():
        at = [place[f"5-shot / {data_set}", method] for method in ("LR", "NCC")]
        numbers = []
        for i in at:
            a = runs[i].accuracies
            numbers += [a.mean(), stats.t.ppf(0.975, len(a) - 1) * stats.sem(a)]
        one = found[at[0], at[1]]
        assert one.ci95 is not None
        rounded = [round(100 * float(value), 2) for value in (*numbers, one.difference, one.ci95)]
        assert rounded == expected


def test_json_and_csv_of_the_same_accuracies_read_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"birds": {"LR": [80, 60.5], "NCC": [70, 50]}}))
    (tmp_path / "a.csv").write_text("\ufeffdataset;task;LR;NCC\r\nbirds;1;80;70\r\nbirds;2;60.5;50\r\n")
    for name in ("a.json", "a.csv"):
        first, second = read_task_accuracies(tmp_path / name)
        assert (first.data_set, first.method, second.method) == ("birds", "LR", "NCC")
        assert first.accuracies == pytest.approx([0.8, 0.605])
        assert second.accuracies == pytest.approx([0.7, 0.5])


def test_shares_are_read_as_shares(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[0.5, 1, 0]")
    (only,) = read_task_accuracies(tmp_path / "a.json")
    assert (only.method, only.accuracies.tolist()) == ("a", [0.5, 1.0, 0.0])


def test_a_method_may_be_missing_on_a_data_set_of_a_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("shot,group,A,B\n1,x,0.5,\n1,x,0.6,\n5,x,0.7,0.8\n")
    found = [
        (one.data_set, one.method, one.accuracies.tolist())
        for one in read_task_accuracies(tmp_path / "a.csv")
    ]
    assert found == [("1 / x", "A", [0.5, 0.6]), ("5 / x", "A", [0.7]), ("5 / x", "B", [0.8])]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", "{}", "holds no list of accuracies"),
        ("a.json", '{"m": []}', "method 'm' has no tasks"),
        ("a.json", '{"x": {"m": [1, "2"]}}', 'x / m, task 2: "2" is not a number'),
        ("a.json", '{"m": [1], "n": [1], "m": [0]}', "is not JSON .'m' stands twice in one object"),
        ("a.csv", "0.1,0.2\n0.3,0.4\n", "has numbers in its first row, which names the methods"),
        ("a.json", '{"m": [true]}', "m, task 1: true is not a number"),
        ("a.json", '{"m": 3}', "m: needed an object of methods or a list"),
        ("a.json", '{"m": [50, 101]}', "method 'm', task 2: 101.0 is no accuracy in per cent"),
        ("a.json", '{"m": [0.5, -0.1]}', "task 2: -0.1 is no accuracy as shares of 1"),
        ("a.json", '{"m": [NaN]}', "task 1: nan is no accuracy"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.json", '{"a":' * 30 + "[1]" + "}" * 30, "needed an object of methods"),
        ("a.json", '{"format": "fsnl.results"}', "holds summaries .*--out"),
        ("a.csv", "", "is empty"),
        ("a.csv", "A,B\n1", "row 2 has 1 cells, the header has 2"),
        ("a.csv", "A,A\n1,2", "two columns of one name"),
        ("a.csv", "A,B\n1,x", "row 2, column 'B': 'x' is not a number"),
        ("a.csv", "A,B\n1,2\n3,\n", "method 'B' has no accuracy for task 2"),
        ("a.csv", "task\n1\n", "holds no list of accuracies"),
    ],
)
def test_a_file_that_holds_no_accuracies_says_why(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FormatError, match=f"{name}: .*{message}"):
        read_task_accuracies(tmp_path / name)


def test_a_file_that_is_not_text_or_not_there_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"A\n\xff\n")
    with pytest.raises(FormatError, match=r"is not UTF-8 text \(byte 2\)"):
        read_task_accuracies(tmp_path / "a.csv")
    with pytest.raises(FormatError, match="no such file"):
        read_task_accuracies(tmp_path / "b.csv")


# The command


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [Made(), Made(classifier="attention", skill=0.52), Made(encoder="net-b", store="b.h5", skill=0.6)]
    return write_results(tmp_path_factory.mktemp("results") / "results.h5", runs)


def test_the_table_says_what_is_compared_and_which_interval_is_over_what(results: Path) -> None:
    done = run("fsnl-compare", results, cwd=results.parent)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(r"^runs +difference +± episodes +± classes", done.stdout, re.MULTILINE)
    assert re.search(
        r"^2 - 3 +-\d+\.\d\d +\d\.\d\d .* 3 is better on these images", done.stdout, re.MULTILINE
    )
    assert "± episodes: closed 95 % interval over the episodes: these images alone" in done.stdout
    assert "± classes: 95 % interval over the classes (jackknife): other classes too" in done.stdout
    assert "corrected for 3 comparisons (Holm)" in done.stdout


def test_json_and_csv_hold_the_same_numbers(results: Path) -> None:
    as_json = run("fsnl-compare", results, "--format", "json", cwd=results.parent)
    as_csv = run("fsnl-compare", results, "--format", "csv", cwd=results.parent)
    content = json.loads(as_json.stdout)
    assert (content["format"], content["version"]) == ("fsnl.comparisons", 1)
    assert [one["name"] for one in content["runs"]] == ["net-a 1nn", "net-a attention", "net-b 1nn"]
    lines = list(csv.DictReader(io.StringIO(as_csv.stdout)))
    for line, record in zip(lines, content["comparisons"], strict=True):
        assert line == {key: "" if value is None else str(value) for key, value in record.items()}
    first = content["comparisons"][0]
    assert (first["a"], first["b"], first["name_b"], first["paired"]) == (0, 1, "net-a attention", True)
    assert first["wins"] + first["ties"] + first["losses"] == 200


@pytest.mark.parametrize("output_format", ["markdown", "latex"])
def test_there_is_a_table_for_documents_too(results: Path, output_format: str) -> None:
    done = run("fsnl-compare", results, "--format", output_format, cwd=results.parent)
    assert done.returncode == 0, done.stderr
    assert {"markdown": "| 1 - 2 | ", "latex": "    1 - 2 & "}[output_format] in done.stdout


def test_unpaired_runs_are_marked_and_other_data_sets_left_out_with_a_note(results: Path) -> None:
    other_seed = write_results(results.parent / "seed.h5", [Made()], images=Images(seed=1))
    other_images = write_results(results.parent / "images.h5", [Made()], images=Images(n_classes=9))
    done = run("fsnl-compare", results, other_seed, other_images, cwd=results.parent)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^1 - 4 +unpaired ", done.stdout, re.MULTILINE)
    assert re.search(r"^1 - 2 +paired ", done.stdout, re.MULTILINE)
    assert "unpaired: the runs had other queries" in done.stdout
    assert "4 pairs of runs are on different data sets and were not compared" in done.stderr


@pytest.mark.parametrize(
    ("runs", "images", "message"),
    [
        ([Made()], [Images()], "nothing to compare: one run; name result files of the same images"),
        ([Made()], [Images(), Images(n_classes=9)], "2 runs, no two of them on one data set"),
    ],
)
def test_nothing_to_compare_is_one_line(
    runs: list[Made], images: list[Images], message: str, tmp_path: Path
) -> None:
    files = [write_results(tmp_path / f"{i}.h5", runs, images=one) for i, one in enumerate(images)]
    done = run("fsnl-compare", *files, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_files_that_cannot_be_compared_are_one_line(tmp_path: Path, tiny_store: Path) -> None:
    done = run("fsnl-compare", "gone.h5", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "Error: gone.h5: no such result file\n")
    done = run("fsnl-compare", tiny_store, cwd=tmp_path)
    assert done.returncode == 1
    assert "is a feature store, needed a result file" in done.stderr
    assert run("fsnl-compare", cwd=tmp_path).returncode == 2
