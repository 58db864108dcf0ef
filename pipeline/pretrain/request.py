"""What to train, on what, and how to run it."""

from dataclasses import dataclass
from pathlib import Path

# What two views of an image may be made by.
VIEWS = ("crop+color", "crop+blur", "color+blur", "crop+color+blur")


@dataclass(frozen=True, slots=True)
class PretrainRequest:
    """What decides the weights.

    Attributes:
        dataset: one of `fsnl.pipeline.datasets.registry.DATASETS`.
        root: its folder, None for an embedded data set.
        split: whose images are seen.
        classes: a file of the names of the classes whose images are seen, None for all.
        csv: a list of the images of `folder`, None for class folders.
        download: get the data set from its publisher where it is not there yet.
        encoder: `resnet10`, `conv4` (either with `:WIDTH`) or `torchvision:NAME`.
        views: one of `VIEWS`.
        epochs: passes over the images.
        batch_size: images per step, over all processes.
        image_size: side in pixels, None for the data set's own.
        temperature: of the loss.
        learning_rate: the highest one, None for 0.5 per 512 images of a batch.
        momentum: of SGD.
        weight_decay: of weights of convolutions and linear layers.
        seed: of first weights, order and views.
        precision: `fp32` or `bf16`.
    """

    dataset: str
    root: Path | None = None
    split: str = "train"
    classes: Path | None = None
    csv: Path | None = None
    download: bool = False
    encoder: str = "resnet10"
    views: str = "crop+color"
    epochs: int = 100
    batch_size: int = 512
    image_size: int | None = None
    temperature: float = 0.2
    learning_rate: float | None = None
    momentum: float = 0.9
    weight_decay: float = 1e-4
    seed: int = 0
    precision: str = "fp32"


@dataclass(frozen=True, slots=True)
class PretrainRunning:
    """How to run, which decides no more than last digits.

    Attributes:
        device: `auto`, `cpu`, `cuda`, `cuda:INDEX` or `mps`.
        workers: decoding threads, None for one on a CPU and one per core beside another device.
        stop_after: end after this many epochs of the schedule, to be gone on with; None for all.
        save_seconds: how long a training may be without being saved; it is saved after every epoch.
        check_val: check the network on few-shot episodes of the val split, ten times in a training and at
            its end; their labels are spent by that, and the checkpoint says so.
        take_over: go on although a run on another host seems to write the checkpoint.
    """

    device: str = "auto"
    workers: int | None = None
    stop_after: int | None = None
    save_seconds: float = 300.0
    check_val: bool = False
    take_over: bool = False
