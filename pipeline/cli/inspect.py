"""fsnl-inspect: what a feature store holds, and its health."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsnl.pipeline.cli.common import CONTEXT, Command, example

if TYPE_CHECKING:
    from fsnl.pipeline.inspect import ImageComparison


@click.command(
    cls=Command,
    context_settings=CONTEXT,
    epilog=example("fsnl-inspect cifar.h5 --verify --duplicates 0.98"),
)
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Hold every byte against the checksums in the file.")
@click.option(
    "--images",
    type=click.Path(path_type=Path),
    metavar="ROOT",
    show_default="none",
    help="Decode the images below ROOT again, and tell which are not those that were encoded.",
)
@click.option(
    "--duplicates",
    type=click.FloatRange(-1, 1),
    metavar="COSINE",
    show_default="pixel-identical images only",
    help="Also list pairs of images whose embeddings have at least this cosine. Time grows with the square "
    "of the number of images.",
)
@click.option(
    "--format", "output_format", type=click.Choice(("text", "json")), default="text", help="What is printed."
)
@click.version_option(package_name="fsnl", message="%(prog)s %(version)s")
def main(
    store: Path, verify: bool, images: Path | None, duplicates: float | None, output_format: str
) -> None:
    """Show what the feature store STORE holds, and what is odd about it.

    Identity and size; rows that are not finite or all zero; norms; constant dimensions; the effective rank
    (how many dimensions the embeddings spread over; Roy and Vetterli 2007); pixel-identical images, and
    whether two splits share any.
    """
    from fsnl.cache.errors import MismatchError
    from fsnl.pipeline.inspect import inspect_store
    from fsnl.pipeline.report import inspection

    found = inspect_store(
        store, verify=verify, images=images, near_threshold=duplicates, progress=_show_progress
    )
    click.echo(inspection.to_json(found) if output_format == "json" else inspection.to_text(found))
    if found.images is not None and (reason := _differences(found.images)):
        raise MismatchError(store, reason)


def _differences(images: "ImageComparison") -> str:
    counts = (("changed", images.changed), ("missing", images.missing), ("new", images.added))
    words = ", ".join(f"{len(names)} {word}" for word, names in counts if names)
    return f"the images below {images.root} are not those that were encoded: {words}" if words else ""


def _show_progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        click.echo(
            f"\r{done:,} of {total:,} images read" + ("\n" if done == total else ""), nl=False, err=True
        )
