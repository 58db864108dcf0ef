"""The parts of a report, before they have a format."""

from collections.abc import Sequence
from dataclasses import dataclass

from fsnl.pipeline.report.drawing import Drawing
from fsnl.pipeline.report.grid import Grid


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a section.

    Attributes:
        title: what it shows.
        grid: its cells.
        folded: whether it is closed at first.
    """

    title: str
    grid: Grid
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of figures or tables.

    Attributes:
        name: its place in the page.
        title: what it is about.
        notes: how to read it, and what was left out.
        drawings: its figures.
        tables: its tables.
    """

    name: str
    title: str
    notes: Sequence[str]
    drawings: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True, slots=True)
class Chapter:
    """All about one data set.

    Attributes:
        title: its name.
        verdicts: what there is to know first, in sentences.
        sections: in the order of the page.
    """

    title: str
    verdicts: Sequence[str]
    sections: Sequence[Section]
