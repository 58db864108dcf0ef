"""A table before it has a format: caption, headings, rows and notes; as text, Markdown or LaTeX."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "'": r"\textquotesingle{}",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "{}$&#_%"},
}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        caption: lines above it.
        headings: of its columns.
        rows: the cells of each row.
        numeric: per column, whether it is aligned to the right.
        notes: lines below it.
    """

    caption: Sequence[str]
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[bool]
    notes: Sequence[str]


def printable(text: str) -> str:
    """The text on one line: control characters and bytes that are not UTF-8 show as escapes.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def to_text(grid: Grid) -> str:
    """Aligned columns, for a terminal."""
    table = [[printable(cell) for cell in cells] for cells in (grid.headings, *grid.rows)]
    widths = [max(map(_width, column)) for column in zip(*table, strict=True)]
    lines = [_aligned(cells, widths, grid.numeric) for cells in table]
    return _stacked(map(printable, grid.caption), lines, map(printable, grid.notes))


def to_markdown(grid: Grid) -> str:
    """A table of GitHub's Markdown; lines of caption and notes keep their breaks."""
    rule = ["---:" if right else "---" for right in grid.numeric]
    table = [grid.headings, rule, *grid.rows]
    lines = [f"| {' | '.join(_markdown(cell) for cell in cells)} |" for cells in table]
    return _stacked(
        (f"{_markdown(line)}  " for line in grid.caption),
        lines,
        (f"{_markdown(line)}  " for line in grid.notes),
    )


def to_latex(grid: Grid) -> str:
    """A floating table with the rules of booktabs, for a paper."""
    aligned = "".join("r" if right else "l" for right in grid.numeric)
    head, *body = (" & ".join(map(_latex, cells)) + r" \\" for cells in (grid.headings, *grid.rows))
    return "\n".join(
        [
            "% in the preamble: \\usepackage{booktabs,textcomp}",
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{'; '.join(map(_latex, grid.caption))}.}}",
            f"  \\begin{{tabular}}{{{aligned}}}",
            r"    \toprule",
            f"    {head}",
            r"    \midrule",
            *(f"    {line}" for line in body),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"  \par\smallskip",
            r"  \begin{minipage}{\linewidth}\footnotesize",
            "  " + " \\\\\n  ".join(map(_latex, grid.notes)),
            r"  \end{minipage}",
            r"\end{table}",
        ]
    )


def _stacked(*blocks: Iterable[str]) -> str:
    return "\n\n".join(text for text in ("\n".join(lines) for lines in blocks) if text).rstrip()


def _aligned(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = []
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        space = " " * (width - _width(cell))
        padded.append(space + cell if right else cell + space)
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """Columns that a terminal gives it: two to wide characters, none to combining ones."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(bool(unicodedata.combining(c)) for c in text)


def _markdown(text: str) -> str:
    """As Markdown shows it literally."""
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{c}" if c in "\\|`*_[]" else c for c in text)


def _latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in printable(text))
