"""fsnl-compare: differences between runs, paired where they answered the same queries."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsnl.pipeline.cli.common import CONTEXT, Command, example, note

if TYPE_CHECKING:
    from fsnl.pipeline.compare import EpisodeAccuracies
    from fsnl.pipeline.report.comparison import Compared

FORMATS = ("table", "json", "csv", "markdown", "latex")


@click.command(
    cls=Command,
    context_settings=CONTEXT,
    epilog=example(
        "fsnl-score pixels.h5 resnet18.h5 --out results.h5",
        "fsnl-compare results.h5",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="RESULTS...", type=click.Path(path_type=Path))
@click.option(
    "--format", "output_format", type=click.Choice(FORMATS), default="table", help="What is printed."
)
@click.version_option(package_name="fsnl", message="%(prog)s %(version)s")
def main(files: tuple[Path, ...], output_format: str) -> None:
    """Compare every two runs of the RESULTS files that are on one data set.

    A file is what fsnl-score wrote with --out, or accuracies per task as JSON or CSV: in JSON objects down to
    lists, the innermost name is the method and the names above it the data set; in CSV a column per method.

    Runs on the same queries are paired, be they of two encoders, two classifiers or two numbers of shots:
    their difference has a far smaller interval than either accuracy. P values are corrected for the number
    of comparisons (Holm).
    """
    from fsnl.cache.errors import ScoringError
    from fsnl.pipeline.compare import compare
    from fsnl.pipeline.report.comparison import Compared

    runs = [run for file in files for run in _read(file)]
    comparisons = compare(runs)
    if not comparisons:
        what = "one run" if len(runs) == 1 else f"{len(runs)} runs, no two of them on one data set"
        msg = f"nothing to compare: {what}; name result files of the same images"
        raise ScoringError(msg)
    left_out = len(runs) * (len(runs) - 1) // 2 - len(comparisons)
    if left_out:
        note(f"{left_out:,} pairs of runs are on different data sets and were not compared")
    click.echo(_formatted(Compared(runs, comparisons), output_format))


def _read(file: Path) -> "list[EpisodeAccuracies]":
    if file.suffix.lower() in (".json", ".csv"):
        from fsnl.pipeline.task_accuracies import read_task_accuracies

        return read_task_accuracies(file)
    from fsnl.cache.result_file import read_result_file
    from fsnl.pipeline.compare import accuracies_of

    return accuracies_of(read_result_file(file), source=str(file))


def _formatted(compared: "Compared", output_format: str) -> str:
    from fsnl.pipeline.report import comparison, comparison_data

    writers = {
        "table": comparison.to_table,
        "json": comparison_data.to_json,
        "csv": comparison_data.to_csv,
        "markdown": comparison.to_markdown,
        "latex": comparison.to_latex,
    }
    return writers[output_format](compared)
