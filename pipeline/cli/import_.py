"""fsnl-import: features made elsewhere, to a feature store."""

from pathlib import Path

import click

from fsnl.pipeline.cli.common import CONTEXT, Command, check_split_name, example, note, refuse_same_file

PATH = click.Path(path_type=Path)


@click.command(
    cls=Command,
    context_settings=CONTEXT,
    epilog=example("fsnl-import output.plk --encoder wrn-s2m2 --dataset miniimagenet --out s2m2.h5"),
)
@click.argument("file", type=PATH)
@click.option("--out", type=PATH, required=True, help="Feature store to write, or to add the split to.")
@click.option("--split", default="test", help="What the features are called in the store.")
@click.option(
    "--labels",
    type=PATH,
    show_default="those in FILE",
    help="A .npy file of N labels, for features (N, D) that come without.",
)
@click.option("--dataset", default="imported", help="What the images are called in results.")
@click.option("--encoder", default="imported", help="What made the features is called in results.")
@click.option(
    "--labels-used",
    type=click.IntRange(min=0),
    show_default="unknown",
    help="Labels that the training of the encoder saw (0 for self-supervised).",
)
@click.option("--force", is_flag=True, help="Replace what lies at --out.")
@click.version_option(package_name="fsnl", message="%(prog)s %(version)s")
def main(
    file: Path,
    out: Path,
    split: str,
    labels: Path | None,
    dataset: str,
    encoder: str,
    labels_used: int | None,
    force: bool,
) -> None:
    """Make a feature store of the features in FILE, and print its path.

    \b
    FILE is one of
      a pickled dict, class -> list of vectors (SimpleShot, PT-MAP: output.plk)
      HDF5 with all_feats, all_labels and count (CloserLookFewShot, S2M2)
      a torch tensor (classes, images, D) (EASY: .pt)
      .npz with features and labels, .npy with --labels or of (classes, images, D)

    Nothing that a file asks to run is run: pickles may hold arrays, numbers, text and plain containers only.
    Classes that are numbers are named by them; image ids are the places in FILE. A second call with another
    --split adds that split, as transforms fitted on the base classes need.
    """
    check_split_name(split)
    refuse_same_file(out, (file,) if labels is None else (file, labels))
    from fsnl.pipeline.import_features import ImportRequest, import_features

    request = ImportRequest(
        file=file, labels=labels, split=split, dataset=dataset, encoder=encoder, labels_used=labels_used
    )
    click.echo(import_features(request, out=out, force=force, note=note))
