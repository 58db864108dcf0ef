"""The report: one HTML page that needs nothing else, neither a network nor a script from elsewhere."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import metadata, resources

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from fsnl.cache.schema import RunSummary
from fsnl.pipeline.report.content import Chapter
from fsnl.pipeline.report.drawing import Drawing, to_svg
from fsnl.pipeline.report.grid import printable
from fsnl.pipeline.report.table import report_grid

TEMPLATES = resources.files("fsnl.pipeline.report") / "templates"
# Above this many a table of results starts folded, so that the figures can be found.
MOST_OPEN_RUNS = 40


def to_html(runs: Sequence[RunSummary], chapters: Sequence[Chapter]) -> str:
    """The page.

    Args:
        runs: all of them, for the table of results.
        chapters: figures and tables, one per data set.
    """
    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(_template),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    environment.filters["drawn"] = _drawn
    script = _template("report.js")
    return environment.get_template("report.html.j2").render(
        chapters=chapters,
        results=report_grid(runs),
        results_folded=len(runs) > MOST_OPEN_RUNS,
        n_runs=len(runs),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=Markup(_template("report.css")),
        version=metadata.version("fsnl"),
    )


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _drawn(drawing: Drawing) -> Markup:
    # Matplotlib and ElementTree have escaped every name that is in it.
    return Markup(to_svg(drawing))
