"""Figures: text that is taken literally, colours that follow the page, files for papers, the map."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from results import Images, Made, make_results

from fsnl.cache.errors import OccupiedError, ScoringError
from fsnl.cache.schema import Features
from fsnl.pipeline.compare import accuracies_of, compare
from fsnl.pipeline.reanalysis import reanalyse
from fsnl.pipeline.report.drawing import THEME, Drawing, new_figure, shortened, to_svg, write_drawings
from fsnl.pipeline.report.grid import printable
from fsnl.pipeline.report.plot_accuracy import accuracy_limits, against_shots, episode_distributions
from fsnl.pipeline.report.plot_classes import class_bars, confusion_matrix
from fsnl.pipeline.report.plot_differences import forest
from fsnl.pipeline.report.plot_map import principal_map

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("<script>alert(1)</script>", "$x^2$ & \"q\" 'q'", "_under", "🦉 日本語", "n" * 300, "a\nb\x01")


def titled(title: str, *, name: str = "one") -> Drawing:
    def draw() -> Figure:
        figure, axes = new_figure(2)
        axes.plot([0, 1], [0, 1], color=next(iter(THEME)))
        axes.set_title(shortened(title))
        return figure

    return Drawing(name, title, f"alt of {title}", draw)


def every_figure(names: tuple[str, ...] = NAMES, *, n_classes: int = 6) -> list[Drawing]:
    """One of each kind, with these names wherever a name can be."""
    class_names = tuple(names[i % len(names)] + str(i) for i in range(n_classes))
    images = Images(n_classes=n_classes, n_way=3, class_names=class_names, n_episodes=40)
    made = [Made(classifier=name, n_shot=shot) for name in names for shot in (1, 5)]
    results = make_results(made, images=images)
    runs = accuracies_of(results, source="r.h5")
    summaries = [run.summary for run in results.runs]
    lines = {name: [one for one in summaries if one.classifier == name] for name in names}
    comparisons = compare(runs)[:5]
    found = reanalyse(results.runs[0], results.episode_sets[results.runs[0].episodes])
    labels = [names[i % len(names)] for i in range(5)]
    return [
        against_shots("shots", names[0], lines, limits=accuracy_limits(summaries)),
        episode_distributions("episodes", names[1], dict(zip(names, runs, strict=False))),
        forest("differences", names[2], comparisons, labels=labels, sides=(names[0], names[1])),
        class_bars("classes", names[3], found, chance=1 / 3),
        confusion_matrix("confusion", names[4], found),
    ]


@pytest.mark.parametrize("drawing", every_figure(), ids=lambda drawing: drawing.name)
def test_every_figure_takes_any_name_literally(drawing: Drawing) -> None:
    text = to_svg(drawing)
    root = ElementTree.fromstring(text)  # well-formed, so nothing in a name became an element
    assert not list(root.iter(f"{SVG}script"))
    assert {child.text for child in root if child.tag in (f"{SVG}title", f"{SVG}desc")} == {
        printable(drawing.title),
        printable(drawing.alt),
    }
    assert root.get("role") == "img"
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text), "it names nothing to load"


def test_a_dollar_is_a_dollar_and_a_leading_underscore_shows() -> None:
    shown = "".join(ElementTree.fromstring(to_svg(every_figure()[0])).itertext())
    assert "$x^2$" in shown
    assert "_under" in shown


def test_text_stays_text() -> None:
    root = ElementTree.fromstring(to_svg(titled("Owls")))
    assert "Owls" in [element.text for element in root.iter(f"{SVG}text")]


def test_colours_are_variables_of_the_page_with_the_paper_colour_to_fall_back_on() -> None:
    text = to_svg(titled("Owls"))
    for colour, name in THEME.items():
        assert text.count(colour) == text.count(f"var(--{name}, {colour})")
    assert "var(--ink, " in text
    assert "<style" not in text, "a style within an svg applies to the whole page"


def test_ids_of_two_figures_differ() -> None:
    ids = [
        element.get("id")
        for name in ("one", "two")
        for element in ElementTree.fromstring(to_svg(titled("Owls", name=name))).iter()
        if element.get("id")
    ]
    assert len(ids) == len(set(ids)) > 2
    text = to_svg(titled("Owls"))
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    assert used <= set(re.findall(r'id="([^"]+)"', text)), "what is referred to is there"


def test_the_same_figure_is_drawn_the_same() -> None:
    first, second = (to_svg(every_figure()[4]) for _ in range(2))
    assert first == second


@given(st.text(max_size=60), st.integers(2, 40))
def test_a_shortened_name_is_one_printable_line_of_that_length(text: str, longest: int) -> None:
    short = shortened(text, longest=longest)
    assert len(short) <= longest
    assert short.isprintable()
    if text.isprintable() and len(text) <= longest:
        assert short == text


def test_figures_are_written_for_papers_and_never_over_something_else(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "plots"
    paths = write_drawings([titled("Owls 🦉")], folder, overwrite=False)
    assert [path.name for path in paths] == ["one.svg", "one.png", "one.pdf"]
    starts = [path.read_bytes()[:5] for path in paths]
    assert starts == [b"<?xml", b"\x89PNG\r", b"%PDF-"]
    with pytest.raises(OccupiedError, match=r"one\.svg: exists already"):
        write_drawings([titled("Owls")], folder, overwrite=False)
    write_drawings([titled("Owls")], folder, overwrite=True)


def test_many_classes_do_not_make_a_large_file() -> None:
    images = Images(n_classes=150, n_per_class=25, n_way=10, n_episodes=500)
    (run,) = (results := make_results([Made()], images=images)).runs
    found = reanalyse(run, results.episode_sets[run.episodes])
    assert len(to_svg(confusion_matrix("c", "t", found))) < 300_000
    bars = to_svg(class_bars("b", "t", found, chance=0.1))
    assert "110 classes between these are not shown" in bars


# The map


def features(embeddings: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", n_classes: int = 4) -> Features:
    n = len(embeddings)
    return Features(
        split="test",
        embeddings=embeddings.astype(np.float32),
        labels=np.sort(np.arange(n, dtype=np.int64) % n_classes),
        class_names=tuple("abcdefgh"[:n_classes]),
        image_ids=tuple(str(i) for i in range(n)),
        image_digests=np.arange(n, dtype=np.uint64),
        labels_sha256="0" * 64,
    )


@pytest.mark.parametrize("shape", [(200, 30), (30, 200), (40, 2)])
def test_the_map_is_the_principal_components(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=shape) * np.linspace(3, 1, shape[1])[:, None].T + 5
    found = principal_map(features(x))
    centred = x - x.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    expected = (u * s)[:, :2]
    signs = np.sign((found.points * expected).sum(axis=0))
    assert found.points == pytest.approx(expected * signs, abs=2e-3 * s[0])
    assert found.explained == pytest.approx(tuple((s**2)[:2] / (s**2).sum()), rel=1e-3)


@pytest.mark.parametrize("exponent", [-100, 120])
def test_a_map_of_extreme_numbers_is_that_of_their_exact_multiples(exponent: int) -> None:
    x = np.random.default_rng(0).normal(size=(40, 6))
    plain, extreme = (principal_map(features(np.ldexp(x, e))) for e in (0, exponent))
    np.testing.assert_array_equal(extreme.points, np.ldexp(plain.points, exponent))
    assert extreme.explained == plain.explained


def test_what_is_not_finite_cannot_be_mapped() -> None:
    x = np.ones((8, 3))
    x[5, 1] = np.nan
    held = features(x, n_classes=1)
    with pytest.raises(ScoringError, match=f"the embedding of '{held.image_ids[5]}' holds NaN or infinity"):
        principal_map(held)


def test_a_map_of_many_images_takes_evenly_of_every_class() -> None:
    x = np.random.default_rng(0).normal(size=(1000, 5))
    found = principal_map(features(x), n_most=100)
    assert np.bincount(found.labels).tolist() == [25, 25, 25, 25]


@pytest.mark.parametrize("x", [np.zeros((8, 3)), np.ones((8, 1)), np.arange(8.0)[:, None], np.ones((1, 3))])
def test_a_map_of_next_to_nothing_is_a_map(x: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> None:
    found = principal_map(features(x, n_classes=1))
    assert found.points.shape == (len(x), 2)
    assert np.isfinite(found.points).all()
    assert found.explained[1] == pytest.approx(0, abs=1e-6)
