"""What a checkpoint of `fsnl-pretrain` says of itself: network, preprocessing, labels."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import LabelsUsed
from fsnl.cache.torch_files import unpacking_refused
from fsnl.pipeline.encoders.recipes import Recipe

CHECKPOINT_FORMAT = "fsnl.checkpoint"
CHECKPOINT_VERSION = 1


@dataclass(frozen=True, slots=True)
class OwnFacts:
    """What decides how a checkpoint's network is built and fed.

    Attributes:
        encoder: `resnet10:WIDTH`, `conv4:WIDTH` or `torchvision:NAME`.
        recipe: how images were prepared for it in training.
        labels_used: what its training cost.
        note: a line for the user where the training has not ended, else None.
    """

    encoder: str
    recipe: Recipe
    labels_used: LabelsUsed
    note: str | None = None


def is_own(path: Path) -> bool:
    """Whether a file seems to be of `fsnl-pretrain`, without loading torch: by the text in its pickle."""
    try:
        if unpacking_refused(path):
            return False
        with zipfile.ZipFile(path) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            return any(CHECKPOINT_FORMAT.encode() in archive.read(name) for name in pickles)
    except (OSError, zipfile.BadZipFile):
        return False


def own_facts(path: Path) -> OwnFacts | None:
    """What a checkpoint says of itself; None for one of others.

    Raises:
        EncoderError: a version that this fsnl does not read, or one of ours that lacks a fact.
    """
    if not is_own(path):
        return None
    from fsnl.pipeline.encoders.checkpoint_file import read_content

    content = read_content(path)
    if not isinstance(content, Mapping) or content.get("format") != CHECKPOINT_FORMAT:
        return None
    version = content.get("format_version")
    if version != CHECKPOINT_VERSION:
        message = f"{path}: format_version {version}, this fsnl reads {CHECKPOINT_VERSION}; update fsnl"
        raise EncoderError(message)
    try:
        prepared, labels = content["preprocessing"], content["labels_used"]
        recipe = Recipe(
            resize=prepared["resize"],
            crop=prepared["crop"],
            interpolation=prepared["interpolation"],
            mean=tuple(prepared["mean"]),
            std=tuple(prepared["std"]),
        )
        spent = LabelsUsed(train=labels["train"], val=labels["val"])
        note = None
        if "optimizer" in content:
            done, n_epochs = len(content["losses"]), content["recipe"]["epochs"]
            note = f"warning: {path.name} is of a training that has not ended, {done} of {n_epochs} epochs"
        return OwnFacts(content["encoder"], recipe, spent, note)
    except (KeyError, TypeError) as error:
        message = f"{path}: a checkpoint of fsnl-pretrain without {error}; train it again"
        raise EncoderError(message) from error
