"""fsnl-extract: encode every image of a split once, into a feature store."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsnl.pipeline.cli.common import CONTEXT, Command, check_split_name, example, note, refuse_same_file
from fsnl.pipeline.cli.options import PATH, csv_option, device_option, root_option, take_over_option

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from fsnl.pipeline.encoders.pooling import Pool


@click.command(
    cls=Command,
    context_settings=CONTEXT,
    epilog=example(
        "fsnl-extract --dataset folder --root photos --encoder torchvision:resnet18 \\",
        "    --weights resnet18.pth --out photos.h5",
    ),
)
@click.option(
    "--dataset",
    default="digits",
    help="digits (embedded); folder: ROOT/<split>/<class>/... or ROOT/<class>/...; or miniimagenet, "
    "cifar-fs, fc100, in whichever layout lies at ROOT.",
)
@root_option
@click.option("--split", "splits", multiple=True, default=("test",), help="Split to encode; repeatable.")
@click.option(
    "--classes",
    type=PATH,
    show_default="all",
    help="File of class names to keep: text, CSV or JSON list.",
)
@csv_option
@click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Leave out images that cannot be decoded, and name them, instead of stopping.",
)
@click.option(
    "--download",
    is_flag=True,
    help="Of cifar-fs and fc100: get CIFAR-100 (180 MB) from its publisher where it is not at ROOT yet; "
    "without ROOT it goes to $FSNL_HOME/data.",
)
@click.option(
    "--encoder",
    default="fsnl:resnet10",
    help="fsnl:resnet10, a small network that fsnl brings along, trained without labels; pixels; fsnl:conv4; "
    "torchvision:NAME; timm:NAME; checkpoint:PATH, whose network is read off its tensors; "
    "python:FILE:FUNCTION, your own code, which is run.",
)
@click.option(
    "--weights",
    show_default="none",
    help="For a network: random:SEED; default, the library's own, downloaded; or a checkpoint file of any of "
    "the usual self-supervised or supervised kinds.",
)
@click.option(
    "--layer",
    default="pooled",
    help="pooled, the feature before the classifier; head, the projection head of a checkpoint; or a module "
    "of the network by its name.",
)
@click.option(
    "--pool",
    type=click.Choice(("auto", "mean", "max", "token", "flatten")),
    default="auto",
    help="One vector of the layer's output: auto averages maps and takes the class token, else the mean, of "
    "tokens.",
)
@click.option(
    "--labels-used",
    type=click.IntRange(min=0),
    show_default="unknown, 0 without training",
    help="Labels that the training of the weights saw (0 for self-supervised).",
)
@click.option(
    "--image-size",
    type=click.IntRange(min=1),
    show_default="the data set's own, else the encoder's",
    help="Side in pixels of what the encoder sees.",
)
@device_option
@click.option(
    "--precision",
    type=click.Choice(("fp32", "bf16", "fp16")),
    default="fp32",
    help="Arithmetic of the network.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    show_default="what suits size and memory",
    help="Images per forward pass.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    show_default="one per core",
    help="Threads that decode images and, on a CPU, encode them.",
)
@click.option("--out", type=PATH, show_default="a file in $FSNL_HOME", help="Feature store to write.")
@click.option("--force", is_flag=True, help="Replace what lies at --out.")
@take_over_option
@click.version_option(package_name="fsnl", message="%(prog)s %(version)s")
def main(
    *,
    dataset: str,
    root: Path | None,
    splits: tuple[str, ...],
    classes: Path | None,
    csv: Path | None,
    skip_unreadable: bool,
    download: bool,
    encoder: str,
    weights: str | None,
    layer: str,
    pool: "Pool",
    labels_used: int | None,
    image_size: int | None,
    device: str,
    precision: str,
    batch_size: int | None,
    workers: int | None,
    out: Path | None,
    force: bool,
    take_over: bool,
) -> None:
    """Encode every image of a data set once and write the embeddings to an HDF5 feature store.

    Prints the store's path. Asked the same again it returns at once; asked for another split of the same
    images and encoder it adds that one.
    """
    for split in splits:
        check_split_name(split)
    if out is not None:
        refuse_same_file(out, (root, classes, csv, encoder, weights))
    from fsnl.pipeline.extract import ExtractRequest, Running, extract
    from fsnl.pipeline.sharding.ranks import this_rank

    request = ExtractRequest(
        dataset=dataset,
        root=root,
        splits=tuple(dict.fromkeys(splits)),
        classes=classes,
        encoder=encoder,
        weights=weights,
        image_size=image_size,
        precision=precision,
        labels_used=labels_used,
        layer=layer,
        pool=pool,
        csv=csv,
        skip_unreadable=skip_unreadable,
        download=download,
    )
    running = Running(device=device, batch_size=batch_size, workers=workers, take_over=take_over)
    try:
        path = extract(request, out=out, force=force, running=running, note=note, progress=_Bars().show)
    except KeyboardInterrupt:
        note(f"{_Bars.end()}interrupted; what is encoded so far is kept: the same command goes on with it")
        raise
    if this_rank().leads:
        click.echo(path)


class _Bars:
    """A progress bar per split on a terminal, with the time left and images/s; nothing elsewhere."""

    @staticmethod
    def end() -> str:
        """What ends the line of a bar that is not done."""
        return "\n" if sys.stderr.isatty() else ""

    def __init__(self) -> None:
        self._bar: ProgressBar[str] | None = None
        self._first, self._began = 0, 0.0

    def show(self, split: str, done: int, total: int) -> None:
        if not sys.stderr.isatty():
            return
        if self._bar is None:
            self._bar = click.progressbar(
                length=total, label=split, file=sys.stderr, show_pos=True, item_show_func=lambda rate: rate
            )
            self._first, self._began = done, time.monotonic()
        seconds = time.monotonic() - self._began
        rate = f"{(done - self._first) / seconds:,.0f} images/s" if seconds > 1 else None
        self._bar.update(done - self._bar.pos, rate)
        if done == total:
            self._bar.render_finish()
            self._bar = None
