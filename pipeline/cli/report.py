"""fsnl-report: a page of tables and figures from result files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsnl.cache.errors import FormatError, FsnlError
from fsnl.pipeline.cli.common import CONTEXT, Command, example, refuse_same_file

if TYPE_CHECKING:
    from fsnl.cache.result_file import ResultFile
    from fsnl.cache.schema import Features

PATH = click.Path(path_type=Path)


@click.command(
    cls=Command,
    context_settings=CONTEXT,
    epilog=example(
        "fsnl-score pixels.h5 resnet18.h5 --shot 1 --shot 5 --shot 20 --out results.h5",
        "fsnl-report results.h5 --store resnet18.h5 --out report.html",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="RESULTS...", type=PATH)
@click.option("--out", type=PATH, show_default="none", help="HTML page to write, complete in itself.")
@click.option(
    "--store",
    "stores",
    type=PATH,
    multiple=True,
    show_default="none",
    help="Feature store whose embeddings are mapped in two dimensions; repeatable.",
)
@click.option(
    "--plots",
    type=PATH,
    show_default="none",
    help="Folder for the figures alone, each as SVG, PNG and PDF.",
)
@click.option(
    "--episodes-csv",
    type=PATH,
    show_default="none",
    help="CSV file to write: the accuracy of every single episode, a column per run.",
)
@click.option("--force", is_flag=True, help="Replace what lies there already.")
@click.version_option(package_name="fsnl", message="%(prog)s %(version)s")
@click.pass_context
def main(
    ctx: click.Context,
    *,
    files: tuple[Path, ...],
    out: Path | None,
    stores: tuple[Path, ...],
    plots: Path | None,
    episodes_csv: Path | None,
    force: bool,
) -> None:
    """Show what the RESULTS files of fsnl-score say: tables, figures and comparisons, on one page.

    The page needs no network and no other file. It reads the predictions in the result files: no encoder and,
    but for --store, no features.
    """
    if out is None and plots is None and episodes_csv is None:
        msg = "nothing to write: name a page with --out, a folder with --plots, or a file with --episodes-csv"
        raise click.UsageError(msg, ctx)
    from fsnl.cache.hdf5 import check_vacant
    from fsnl.cache.result_file import read_result_file

    for option, path in (("--out", out), ("--episodes-csv", episodes_csv)):
        if path is not None:
            check_vacant(path, overwrite=force)
            refuse_same_file(path, (*files, *stores), option=option)
    if out is not None and episodes_csv is not None and out.resolve() == episodes_csv.resolve():
        msg = f"{episodes_csv} is the page that --out names; name another file"
        raise click.BadParameter(msg, param_hint="--episodes-csv")
    results = {str(file): read_result_file(file) for file in files}
    for file, content in results.items():
        if not content.runs:
            raise FormatError(file, "holds no runs")
    if out is not None or plots is not None:
        _draw(results, _maps(results, stores), out=out, plots=plots, force=force)
    if episodes_csv is not None:
        _write_episodes(results, episodes_csv, force=force)


def _draw(
    results: "Mapping[str, ResultFile]",
    maps: "list[tuple[str, Features]]",
    *,
    out: Path | None,
    plots: Path | None,
    force: bool,
) -> None:
    try:
        from fsnl.pipeline.report.drawing import write_drawings
        from fsnl.pipeline.report.files import write_text
        from fsnl.pipeline.report.page import to_html
        from fsnl.pipeline.report.sections import chapters
    except ModuleNotFoundError as error:
        if error.name not in ("matplotlib", "jinja2", "markupsafe"):
            raise
        msg = f"reports need {error.name}, which is not installed; pip install 'fsnl[report]'"
        raise FsnlError(msg) from error
    found = chapters(results, maps)
    if out is not None:
        summaries = [run.summary for content in results.values() for run in content.runs]
        write_text(out, to_html(summaries, found), overwrite=force)
        click.echo(out)
    if plots is not None:
        drawings = [one for chapter in found for section in chapter.sections for one in section.drawings]
        for path in write_drawings(drawings, plots, overwrite=force):
            click.echo(path)


def _maps(results: "Mapping[str, ResultFile]", stores: tuple[Path, ...]) -> "list[tuple[str, Features]]":
    from fsnl.cache.errors import MismatchError
    from fsnl.cache.reader import open_store
    from fsnl.pipeline.summary import encoder_label

    wanted = {run.summary.labels_sha256 for content in results.values() for run in content.runs}
    found = []
    for path in stores:
        store = open_store(path)
        splits = [store.features(split) for split in store.splits]
        own = [features for features in splits if features.labels_sha256 in wanted]
        if not own:
            reason = "no split of it is of the images that these results are of; name a store that was scored"
            raise MismatchError(path, reason)
        found += [(encoder_label(store.header.encoder), features) for features in own]
    return found


def _write_episodes(results: "Mapping[str, ResultFile]", path: Path, *, force: bool) -> None:
    from fsnl.pipeline.compare import accuracies_of
    from fsnl.pipeline.report.episode_csv import to_episode_csv
    from fsnl.pipeline.report.files import write_text

    runs = [run for file, content in results.items() for run in accuracies_of(content, source=file)]
    write_text(path, to_episode_csv(runs), overwrite=force)
    click.echo(path)
