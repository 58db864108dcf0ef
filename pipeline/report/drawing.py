"""How all figures look, and a drawn figure as SVG that follows the page's colours, or as a file for a paper.

Figures are drawn in the colours of light paper. In the SVG for a page each of them becomes a CSS variable,
so one drawing serves a light and a dark screen. Text stays text: it takes the page's font, and a browser has
glyphs that Matplotlib's own font lacks.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fsnl.cache.hdf5 import check_vacant
from fsnl.pipeline.report.grid import printable

INK, MUTED, RULE, PAPER = "#1a1b1c", "#6b6c6d", "#d9dadb", "#fefdfc"
# Told apart by people of any colour vision, and dark enough on paper; each has a marker of its own too.
SERIES = ("#0072b2", "#c44e00", "#007a5a", "#a64d8c", "#8a6100", "#4d5bb0")
MARKERS = ("o", "s", "^", "D", "v", "P")
THEME = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"} | {
    colour: f"series-{i}" for i, colour in enumerate(SERIES)
}
FORMATS = ("svg", "png", "pdf")
WIDTH = 5.2  # inches; narrow enough to stay readable on a phone
LONGEST_NAME = 34

STYLE: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "fsnl",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure to be drawn.

    Attributes:
        name: of its file, and of its place in the page.
        title: what it shows, in a few words.
        alt: what there is to see in it, for who cannot.
        draw: makes it, in the colours of this module.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[], Figure]


def new_figure(height: float, *, width: float = WIDTH) -> tuple[Figure, Axes]:
    """A figure of one panel, in inches."""
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots()


def shortened(name: str, *, longest: int = LONGEST_NAME) -> str:
    """The name on one line, its middle left out where it is long.

    >>> shortened("a-very-long-name", longest=9)
    'a-ve…name'
    """
    text = printable(name)
    if len(text) <= longest:
        return text
    head = longest // 2
    return f"{text[:head]}…{text[len(text) - (longest - head - 1) :]}"


def to_svg(drawing: Drawing) -> str:
    """An `<svg>` element for a page, with title and description for a screen reader."""
    with _styled():
        buffer = io.StringIO()
        drawing.draw().savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue().encode())
    return _for_page(root, drawing)


def write_drawings(drawings: list[Drawing], folder: Path, *, overwrite: bool) -> list[Path]:
    """Each drawing as SVG, PNG and PDF on white paper, for other documents.

    Raises:
        OccupiedError: a file is there already and `overwrite` is false.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{drawing.name}.{suffix}" for drawing in drawings for suffix in FORMATS]
    for path in paths:
        check_vacant(path, overwrite=overwrite)
    for drawing in drawings:
        with _styled():
            figure = drawing.draw()
            for suffix in FORMATS:
                date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
                figure.savefig(folder / f"{drawing.name}.{suffix}", metadata=date, facecolor="white")
    return paths


@contextmanager
def _styled() -> Iterator[None]:
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # Names may hold characters that Matplotlib's font lacks; a browser finds them elsewhere.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"


def _for_page(root: ElementTree.Element, drawing: Drawing) -> str:
    """Sized by the page, coloured by its variables, its ids its own."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    width = float(root.get("viewBox", "0 0 400 300").split()[2])
    for unwanted in ("width", "height", "version"):
        root.attrib.pop(unwanted, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{drawing.name}-title {drawing.name}-desc")
    root.set("style", f"max-width: {width:.0f}pt")
    for child in list(root):
        if child.tag == f"{{{SVG}}}metadata" or child.find(f"{{{SVG}}}style") is not None:
            root.remove(child)  # the style would apply to the whole page, which has its own
    used = _references(root)
    for element in root.iter():
        name = element.get("id")
        if name is not None:
            if name in used:
                element.set("id", f"{drawing.name}-{name}")
            else:
                del element.attrib["id"]
        for key, value in element.attrib.items():
            element.set(key, _themed(_renamed(value, used, prefix=drawing.name)))
    for tag, text in (("desc", drawing.alt), ("title", drawing.title)):
        label = ElementTree.Element(f"{{{SVG}}}{tag}", {"id": f"{drawing.name}-{tag}"})
        label.text = printable(text)  # XML has no control characters
        root.insert(0, label)
    return ElementTree.tostring(root, encoding="unicode")


def _references(root: ElementTree.Element) -> set[str]:
    values = [value for element in root.iter() for value in element.attrib.values()]
    return {name for value in values for name in re.findall(r"(?:url\(#|^#)([^)]+)\)?", value)}


def _renamed(value: str, used: set[str], *, prefix: str) -> str:
    if value.startswith("#") and value[1:] in used:
        return f"#{prefix}-{value[1:]}"
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", value)


def _themed(value: str) -> str:
    for colour, name in THEME.items():
        value = value.replace(colour, f"var(--{name}, {colour})")
    return value
