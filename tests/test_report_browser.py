"""The report in a browser: wide and narrow, light and dark, by keyboard, on paper."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium
from results import Images, Made, make_results

from fsnl.pipeline.report.page import to_html
from fsnl.pipeline.report.sections import chapters

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs Chromium: apt-get install chromium")

HOSTILE = (
    "<script>document.title = 'broken'</script>",
    "<img src=x onerror=\"document.title='broken'\">",
    "n" * 300,
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report whose names try to run scripts, to load images, and to be wider than a phone."""
    made = [
        Made(encoder=encoder, n_shot=shot, classifier=HOSTILE[0], skill=skill)
        for encoder, skill in ((HOSTILE[1], 0.5), (HOSTILE[2], 0.6))
        for shot in (1, 5)
    ]
    results = make_results(made, images=Images(class_names=(*HOSTILE, *"abcde"), n_episodes=60))
    path = tmp_path_factory.mktemp("page") / "report.html"
    text = to_html([run.summary for run in results.runs], chapters({"results.h5": results}, []))
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_loads_nothing_complains_of_nothing_and_fits(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, dark=dark)
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [page.as_uri()]
    assert browser.evaluate("document.title") == "Few-shot accuracy, folder test"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    figures = browser.evaluate(
        "[...document.querySelectorAll('figure svg')].map((s) => s.getBoundingClientRect().width)"
    )
    assert len(figures) == 1 + 1 + 1 + 1 + 1
    assert all(300 < one <= width for one in figures)


def luminance(browser: Browser, name: str) -> float:
    """WCAG's relative luminance of a colour of the page."""
    shown = browser.evaluate(
        f"""(() => {{
            const probe = document.createElement("i");
            probe.style.color = "var(--{name})";
            document.body.append(probe);
            const colour = getComputedStyle(probe).color;
            probe.remove();
            return colour;
        }})()"""
    )
    channels = [int(channel) / 255 for channel in re.findall(r"\d+", shown)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(browser: Browser, name: str) -> float:
    """WCAG's contrast of a colour of the page with its background."""
    low, high = sorted([luminance(browser, name), luminance(browser, "paper")])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_and_lines_stand_out_from_the_page(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, width=800, dark=dark)
    assert (luminance(browser, "paper") < 0.2) is dark
    for text in ("ink", "muted", "link"):
        assert contrast(browser, text) >= 4.5, text
    for i in range(6):
        assert contrast(browser, f"series-{i}") >= 3, i
    fill = "getComputedStyle(document.querySelector('figure svg text')).fill"
    assert browser.evaluate(fill) == browser.evaluate("getComputedStyle(document.body).color")


def accuracies(browser: Browser) -> list[float]:
    column = (
        "[...document.querySelectorAll('table.sortable th')].findIndex((h) => h.textContent === 'accuracy %')"
    )
    cells = (
        f"[...document.querySelectorAll('table.sortable tbody tr')].map((r) => r.cells[{column}].textContent)"
    )
    return [float(text) for text in browser.evaluate(cells)]


def test_the_table_is_sorted_by_keyboard(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    for _ in range(60):
        browser.press("Tab")
        if browser.evaluate("document.activeElement.textContent") == "accuracy %":
            break
    before = accuracies(browser)
    browser.press("Enter")
    assert accuracies(browser) == sorted(before, reverse=True)
    assert browser.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')") == "descending"
    browser.press("Enter")
    assert accuracies(browser) == sorted(before)
    assert browser.evaluate("document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"


def test_the_first_key_skips_to_the_results(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.textContent") == "Skip to the results"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press("Enter")
    assert browser.evaluate("location.hash") == "#results"


def test_the_page_can_be_printed_and_shows_light_colours_then(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    browser.open(page, width=1280, dark=True)
    browser.print_pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(254, 253, 252)"
    browser.call("Emulation.setEmulatedMedia", media="")
