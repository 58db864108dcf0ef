"""The page as a document: complete in itself, every name escaped, nothing too large; and the command."""

import base64
import csv
import hashlib
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from checkout import run
from results import Images, Made, make_results, write_results
from stores import clusters, even_labels, write_store

from fsnl.cache.result_file import ResultFile
from fsnl.cache.schema import Features
from fsnl.pipeline.compare import accuracies_of, compare
from fsnl.pipeline.report.episode_csv import to_episode_csv
from fsnl.pipeline.report.page import to_html
from fsnl.pipeline.report.sections import chapters
from fsnl.pipeline.task_accuracies import read_task_accuracies

NASTY = (
    "<script>alert(1)</script>",
    "\"double\" 'single' & <b>bold</b>",
    "🦉 日本語",
    "n" * 300,
    "$x^2$ {{ 7 * 7 }} {% endif %}",
    "two\nlines\x01",
    "]]> --> </svg></style>",
)
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """What a browser finds in a page: elements with attributes, ids, and text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "elements close in the order of their opening"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.elements if attribute in attributes]


def page_of(results: ResultFile, maps: Sequence[tuple[str, Features]] = ()) -> str:
    summaries = [run.summary for run in results.runs]
    return to_html(summaries, chapters({"results.h5": results}, maps))


@pytest.fixture(scope="module")
def usual() -> str:
    """Two encoders, two shots, two classifiers."""
    made = [
        Made(encoder=encoder, n_shot=shot, classifier=classifier)
        for encoder in ("net-a", "net-b")
        for shot in (1, 5)
        for classifier in ("1nn", "attention")
    ]
    return page_of(make_results(made))


def test_the_page_has_every_part_in_its_place(usual: str) -> None:
    page = Page(usual)
    ids = [value for value in page.values("id") if value in page_sections()]
    assert ids == list(page_sections())
    links = [value[1:] for value in page.values("href") if value.startswith("#")]
    assert [link for link in links if link in page_sections()][1:] == ids, (
        "the contents link to each, in order"
    )
    assert page.count("svg") == 2 + 3 + 2 + 2 + 2
    assert "5-way, 15 queries per class, 200 episodes, drawn with replacement, seed 0" in page.text
    assert "± classes: 95 % interval over the classes (jackknife): what other classes would give" in page.text
    for heading in ("accuracy %", "± episodes", "± classes", "train labels", "val labels", "support labels"):
        assert heading in page.text


def page_sections() -> tuple[str, ...]:
    return ("results", "shots", "differences", "classes", "confusion", "extremes", "episodes")


def test_the_page_needs_nothing_else(usual: str) -> None:
    page = Page(usual)
    assert not page.values("src")
    for link in [*page.values("href"), *page.values("xlink:href")]:
        assert link.startswith(("#", "data:")), link
    assert not re.search(r"@import|url\((?!#)", usual)
    # A browser refuses whatever the policy does not name, and of scripts it names this one.
    policy = next(value for value in page.values("content") if value.startswith("default-src"))
    assert policy.startswith(
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-"
    )
    (script,) = re.findall(r"<script>(.*?)</script>", usual, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy


def test_the_page_can_be_read_without_seeing_it(usual: str) -> None:
    page = Page(usual)
    ids = page.values("id")
    assert len(ids) == len(set(ids)), "an id that occurs twice labels nothing"
    for references in page.values("aria-labelledby"):
        assert set(references.split()) <= set(ids)
    assert page.count("title") == page.count("svg") + 1
    assert page.count("desc") == page.count("figcaption") == page.count("svg")
    assert ("html", {"lang": "en"}) in page.elements
    for attributes in (a for _, a in page.elements if a.get("class") == "scroll"):
        assert attributes["tabindex"] == "0", "what scrolls can be reached by keyboard"
        assert attributes["aria-label"]


def test_the_verdict_comes_first_in_words(usual: str) -> None:
    sentences = [text for text in Page(usual).text if text.startswith("5-way ")]
    assert any(re.match(r"5-way 1-shot: net-\w+ \w+ \d+\.\d\d %, then net-\w+ \w+ \d+", s) for s in sentences)
    assert all(s.endswith(".") for s in sentences if "shot:" in s)


def test_names_of_every_kind_show_as_they_are() -> None:
    made = [
        Made(encoder=NASTY[i], classifier=NASTY[i + 1], transform=NASTY[i + 2], store=NASTY[i + 3], n_shot=k)
        for i in range(4)
        for k in (1, 5)
    ]
    page_text = page_of(make_results(made, images=Images(class_names=(*NASTY, "plain"), n_episodes=100)))
    page = Page(page_text)
    assert page.count("script") == 1
    assert not page.count("b")
    shown = "\n".join(page.text)
    for name in NASTY:
        assert name.replace("\n", "\\n").replace("\x01", "\\x01") in shown
    assert "49" not in page.text
    assert "\x01" not in page_text


def test_a_page_of_a_hundred_runs_is_small_and_says_what_it_leaves_out() -> None:
    made = [
        Made(encoder=f"net-{i}", store=f"{i}.h5", classifier=c, n_shot=k, skill=0.3 + 0.01 * i)
        for i in range(25)
        for c in ("1nn", "attention")
        for k in (1, 5)
    ]
    text = page_of(make_results(made, images=Images(n_episodes=60)))
    page = Page(text)
    assert len(text) < 3_000_000
    assert "All 100 runs" in page.text
    assert "Of 25 panels those with the most accurate runs are shown." in page.text
    assert "fsnl-compare lists all 4,950 comparisons." in page.text
    assert sum(text.startswith("net-") and text.endswith("1nn") for text in page.text) >= 4


@pytest.mark.parametrize(
    ("made", "images"),
    [
        ([Made()], Images(n_episodes=1, n_classes=2, n_way=2, n_query=1)),
        ([Made(), Made(classifier="attention")], Images(n_episodes=1)),
        ([Made(), Made(n_shot=5)], Images(n_classes=2, n_way=2)),
        ([Made(), Made(skill=-1), Made(classifier="attention", skill=9)], Images(n_episodes=20)),
        ([Made(), Made(encoder="net-b", skill=0.8)], Images(without_replacement=True)),
    ],
    ids=["one query", "one episode", "two classes", "all wrong and all right", "without replacement"],
)
def test_small_and_extreme_results_have_a_page(made: list[Made], images: Images) -> None:
    page = Page(page_of(make_results(made, images=images)))
    assert page.count("svg") >= 3
    assert "nan" not in " ".join(page.text).lower().split()


def test_runs_of_two_data_sets_have_a_chapter_each() -> None:
    first = make_results([Made(), Made(classifier="attention")])
    second = make_results([Made(dataset="birds")], images=Images(n_classes=9))
    summaries = [run.summary for content in (first, second) for run in content.runs]
    page = Page(to_html(summaries, chapters({"a.h5": first, "b.h5": second}, [])))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {"data1-classes", "data2-classes"} <= set(ids)
    assert {"folder test", "birds test"} <= set(page.text)


# Accuracies of single episodes


def test_the_csv_of_episodes_is_what_fsnl_compare_reads(tmp_path: Path) -> None:
    first = make_results([Made(), Made(classifier="attention", skill=0.6)])
    second = make_results([Made(dataset="birds")], images=Images(n_classes=9, n_episodes=30))
    runs = [*accuracies_of(first, source="a.h5"), *accuracies_of(second, source="b.h5")]
    (tmp_path / "episodes.csv").write_text(to_episode_csv(runs))
    again = read_task_accuracies(tmp_path / "episodes.csv")
    assert [one.accuracies.tolist() for one in again] == [one.accuracies.tolist() for one in runs]
    (expected,), (found,) = compare(runs), compare(again)
    assert (found.difference, found.ci95, found.p) == (expected.difference, expected.ci95, expected.p)


# The command


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = [Made(), Made(classifier="attention", skill=0.6)]
    return write_results(tmp_path_factory.mktemp("report") / "results.h5", made)


def test_the_command_writes_page_figures_and_episodes(results: Path, tmp_path: Path) -> None:
    options = ["--out", "r.html", "--plots", "plots", "--episodes-csv", "e.csv"]
    done = run("fsnl-report", results, *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    written = done.stdout.splitlines()
    assert written == [
        "r.html",
        *(f"plots/{name}-1.{suffix}" for name in figure_names() for suffix in ("svg", "png", "pdf")),
        "e.csv",
    ]
    assert all((tmp_path / name).stat().st_size > 100 for name in written)
    rows = list(csv.reader((tmp_path / "e.csv").read_text().splitlines()))
    assert rows[0] == ["dataset", "episode", "1nn", "attention"]
    assert len(rows) == 201
    assert not list(tmp_path.glob(".*")), "nothing is left beside them"

    again = run("fsnl-report", results, "--out", "r.html", cwd=tmp_path)
    assert again.returncode == 1
    assert again.stderr == "Error: r.html: exists already; use another --out, or --force to replace it\n"


def figure_names() -> tuple[str, ...]:
    return ("differences", "classes", "confusion", "episodes")


def test_a_store_of_the_same_images_is_mapped_and_another_refused(tmp_path: Path, tiny_store: Path) -> None:
    run("fsnl-score", tiny_store, "--query", "5", "--episodes", "30", "--out", "r.h5", cwd=tmp_path)
    done = run("fsnl-report", "r.h5", "--store", tiny_store, "--out", "r.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = Page((tmp_path / "r.html").read_text())
    assert "Maps of the embeddings" in page.text
    assert "tests, 72 images" in page.text

    other = write_store(
        tmp_path / "other.h5",
        clusters(n_classes=3, n_per_class=9, dim=4),
        even_labels(n_classes=3, n_per_class=9),
    )
    refused = run("fsnl-report", "r.h5", "--store", other, "--out", "x.html", cwd=tmp_path)
    assert refused.returncode == 1
    assert "other.h5: no split of it is of the images that these results are of" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_call_that_would_write_nothing_is_wrong(results: Path, tmp_path: Path) -> None:
    done = run("fsnl-report", results, cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing to write: name a page with --out" in done.stderr.splitlines()[-1]


def test_without_matplotlib_the_command_says_what_to_install(results: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    done = run("fsnl-report", results, "--out", "r.html", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        "Error: reports need matplotlib, which is not installed; pip install 'fsnl[report]'\n"
    )
