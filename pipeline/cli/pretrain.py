"""fsnl-pretrain: train an encoder without a single label."""

import math
import sys
import time
from pathlib import Path

import click

from fsnl.pipeline.cli.common import CONTEXT, Command, check_split_name, example, note, refuse_same_file
from fsnl.pipeline.cli.options import PATH, csv_option, device_option, root_option, take_over_option
from fsnl.pipeline.pretrain.request import VIEWS


@click.command(
    cls=Command,
    context_settings=CONTEXT,
    epilog=example(
        "fsnl-pretrain --dataset cifar-fs --root CIFAR --epochs 100 --out simclr.pt",
        "fsnl-extract --dataset cifar-fs --root CIFAR --encoder checkpoint:simclr.pt --out cifar.h5",
    ),
)
@click.option(
    "--dataset",
    required=True,
    help="folder: ROOT/<split>/<class>/... or ROOT/<class>/...; or miniimagenet, cifar-fs, fc100.",
)
@root_option
@click.option("--split", default="train", help="Split whose images are seen; test is refused.")
@click.option(
    "--classes",
    type=PATH,
    show_default="all",
    help="File of the names of the classes whose images are seen: text, CSV or JSON list.",
)
@csv_option
@click.option(
    "--download",
    is_flag=True,
    help="Of cifar-fs and fc100: get CIFAR-100 (180 MB) from its publisher where it is not at ROOT yet.",
)
@click.option(
    "--encoder",
    default="resnet10",
    help="resnet10 or conv4, with :WIDTH for the channels at first; or torchvision:NAME. Its weights are "
    "random at first.",
)
@click.option(
    "--views",
    type=click.Choice(VIEWS),
    default="crop+color",
    help="What makes two views of an image: resized crops (and mirroring), colour distortion, Gaussian blur.",
)
@click.option("--epochs", type=click.IntRange(min=1), default=100, help="Passes over the images.")
@click.option(
    "--batch-size",
    type=click.IntRange(min=2),
    default=512,
    help="Images per step, each in two views; of all processes together.",
)
@click.option(
    "--image-size",
    type=click.IntRange(min=8),
    show_default="the data set's own, else 32, of torchvision 224",
    help="Side in pixels of what the encoder sees.",
)
@click.option("--temperature", type=float, default=0.2, help="Of the loss, NT-Xent.")
@click.option(
    "--learning-rate",
    type=float,
    show_default="0.5 per 512 images of a batch",
    help="The highest one, of SGD; it rises over a twentieth of the steps, then falls by a cosine to 0.",
)
@click.option("--momentum", type=float, default=0.9, help="Of SGD.")
@click.option(
    "--weight-decay", type=float, default=1e-4, help="Of the weights of convolutions and linear layers."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**63 - 1),
    default=0,
    help="Of first weights, order and views.",
)
@click.option(
    "--precision", type=click.Choice(("fp32", "bf16")), default="fp32", help="Arithmetic of the network."
)
@device_option
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    show_default="1 on a CPU, else one per core",
    help="Threads that decode images.",
)
@click.option(
    "--check-val",
    is_flag=True,
    help="Show few-shot accuracy on the val split ten times. It spends val's labels; the checkpoint says so.",
)
@click.option(
    "--stop-after",
    type=click.IntRange(min=1),
    show_default="the last",
    help="Stop after this epoch of the same schedule; the same command without it goes on.",
)
@click.option("--out", type=PATH, required=True, help="Checkpoint to write, after every epoch.")
@click.option("--force", is_flag=True, help="Begin anew, whatever lies at --out.")
@take_over_option
@click.version_option(package_name="fsnl", message="%(prog)s %(version)s")
def main(
    *,
    dataset: str,
    root: Path | None,
    split: str,
    classes: Path | None,
    csv: Path | None,
    download: bool,
    encoder: str,
    views: str,
    epochs: int,
    batch_size: int,
    image_size: int | None,
    temperature: float,
    learning_rate: float | None,
    momentum: float,
    weight_decay: float,
    seed: int,
    precision: str,
    device: str,
    workers: int | None,
    check_val: bool,
    stop_after: int | None,
    out: Path,
    force: bool,
    take_over: bool,
) -> None:
    """Train an encoder without labels (SimCLR) on the images of one split, and write a checkpoint.

    Prints the checkpoint's path; --encoder checkpoint:PATH of fsnl-extract takes it. Stopped, however it
    was, the same command goes on where it was last saved. Under torchrun all processes train one network.
    """
    check_split_name(split)
    refuse_same_file(out, (root, classes, csv))
    _check_numbers(
        temperature=temperature,
        learning_rate=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
    )
    from fsnl.pipeline.pretrain.memory import keep_freed_memory
    from fsnl.pipeline.pretrain.request import PretrainRequest, PretrainRunning

    keep_freed_memory()
    from fsnl.pipeline.pretrain.training import pretrain
    from fsnl.pipeline.sharding.ranks import this_rank

    request = PretrainRequest(
        dataset=dataset,
        root=root,
        split=split,
        classes=classes,
        csv=csv,
        download=download,
        encoder=encoder,
        views=views,
        epochs=epochs,
        batch_size=batch_size,
        image_size=image_size,
        temperature=temperature,
        learning_rate=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        seed=seed,
        precision=precision,
    )
    running = PretrainRunning(
        device=device, workers=workers, stop_after=stop_after, check_val=check_val, take_over=take_over
    )
    line = _Line()
    try:
        pretrain(
            request,
            out=out,
            force=force,
            running=running,
            note=line.note,
            progress=line.show,
            looked_at=line.look,
        )
    except KeyboardInterrupt:
        line.note("interrupted; the same command goes on where the checkpoint was last saved")
        raise
    if this_rank().leads:
        click.echo(out)


def _check_numbers(
    *, temperature: float, learning_rate: float | None, momentum: float, weight_decay: float
) -> None:
    """Refuse numbers that no training can have.

    Raises:
        click.BadParameter: one of them; it is named.
    """
    for option, number in (("--temperature", temperature), ("--learning-rate", learning_rate)):
        if number is not None and not (math.isfinite(number) and number > 0):
            msg = f"{number} is not a positive number"
            raise click.BadParameter(msg, param_hint=option)
    if not 0 <= momentum < 1:
        msg = f"{momentum} is not in [0, 1)"
        raise click.BadParameter(msg, param_hint="--momentum")
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        msg = f"{weight_decay} is not 0 or more"
        raise click.BadParameter(msg, param_hint="--weight-decay")


class _Line:
    """On a terminal one line that tells how far it is; nothing elsewhere but the notes."""

    EVERY_SECONDS = 0.2

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._drawn = 0.0
        self._is_drawn = False

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._is_drawn:
            click.echo("\r\033[K", err=True, nl=False)
            self._is_drawn = False
        note(text)

    def look(self, done: int, total: int) -> None:
        """How many images were looked at, before the training."""
        if time.monotonic() - self._drawn > self.EVERY_SECONDS:
            self._draw(f"looking at the images: {done:,} of {total:,}")

    def show(self, done: int, total: int, loss: float) -> None:
        """How far the training is."""
        now = time.monotonic()
        if self._first is None:
            self._first = done, now
            return
        rate = (done - self._first[0]) / (now - self._first[1])
        left = (total - done) / rate / 60
        self._draw(f"{100 * done / total:.1f} %, loss {loss:.3f}, {rate:,.0f} images/s, {left:,.0f} min left")

    def _draw(self, text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[K{text}", err=True, nl=False)
            self._drawn, self._is_drawn = time.monotonic(), True
