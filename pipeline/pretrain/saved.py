"""The checkpoint of a training: the network, what it was made with, and where the training stands.

A dictionary that `torch.load(weights_only=True)` reads: tensors under `state_dict` (names of the network
after `backbone.`, of the projection head after `projector.`), all else plain numbers, texts, lists and
dictionaries. While the training goes on the optimiser's state lies in it too.
"""

import io
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from fsnl.cache.errors import EncoderError, MismatchError
from fsnl.cache.schema import DatasetInfo, LabelsUsed, Preprocessing
from fsnl.cache.whole_file import write_whole
from fsnl.pipeline.encoders.checkpoint_file import read_content
from fsnl.pipeline.encoders.own_checkpoint import CHECKPOINT_FORMAT, CHECKPOINT_VERSION
from fsnl.pipeline.pretrain.recipe import TrainingRecipe

_ADVICE = "use another --out, or --force"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a training is of: another of any of these is another training.

    Attributes:
        dataset: which data set; its name decides nothing, and is told.
        split: of it.
        n_images: how many.
        images_sha256: which, see `fsnl.pipeline.pretrain.images.TrainingImages`; None where that is not known
            yet.
        preprocessing: how they are prepared for the network.
        recipe: how it is trained.
    """

    dataset: DatasetInfo
    split: str
    n_images: int
    images_sha256: str | None
    preprocessing: Preprocessing
    recipe: TrainingRecipe


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a training is.

    Attributes:
        steps: done.
        losses: of each epoch that is done, the mean over its steps.
        partial: losses of the steps of the epoch that is not, summed.
        labels_used: labels that it cost so far.
        checks: of each few-shot check on the val split: epoch, 1-shot and 5-shot accuracy.
    """

    steps: int
    losses: tuple[float, ...]
    partial: float
    labels_used: LabelsUsed
    checks: tuple[tuple[int, float, float], ...] = ()


def save(
    path: Path,
    identity: Identity,
    standing: Standing,
    *,
    tensors: dict[str, torch.Tensor],
    optimizer: dict[str, Any] | None,
    environment: dict[str, str],
    overwrite: bool,
) -> None:
    """Write a checkpoint aside and rename it.

    Args:
        path: where to.
        identity: what is trained.
        standing: how far it is.
        tensors: of encoder and head.
        optimizer: its state, None when the training is at its end.
        environment: what only colours the last digits.
        overwrite: replace what lies there.

    Raises:
        OccupiedError, WriteError: as `write_whole`.
    """
    content: dict[str, object] = {
        "format": CHECKPOINT_FORMAT,
        "format_version": CHECKPOINT_VERSION,
        "created_by": f"fsnl {metadata.version('fsnl')}",
        "encoder": identity.recipe.encoder,
        "dataset": asdict(identity.dataset),
        "split": identity.split,
        "n_images": identity.n_images,
        "images_sha256": identity.images_sha256,
        "preprocessing": asdict(identity.preprocessing),
        "recipe": asdict(identity.recipe),
        "labels_used": asdict(standing.labels_used),
        "steps": standing.steps,
        "losses": list(standing.losses),
        "partial_loss": standing.partial,
        "checks": [list(check) for check in standing.checks],
        "environment": environment,
        "state_dict": {name: tensor.cpu().contiguous() for name, tensor in tensors.items()},
    }
    if optimizer is not None:
        content["optimizer"] = optimizer
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_whole(path, buffer.getvalue(), overwrite=overwrite)


def load(path: Path, identity: Identity) -> tuple[Standing, dict[str, Any]]:
    """A checkpoint of this very training.

    Returns:
        How far it is, and the whole content, for `state_dict` and `optimizer`.

    Raises:
        MismatchError: something else, or damaged; of another training each field that differs is named.
    """
    try:
        content = read_content(path)
    except EncoderError as error:
        raise MismatchError(path, f"is no checkpoint of fsnl-pretrain, or damaged; {_ADVICE}") from error
    if not isinstance(content, dict) or content.get("format") != CHECKPOINT_FORMAT:
        raise MismatchError(path, f"is no checkpoint of fsnl-pretrain; {_ADVICE}")
    if content.get("format_version") != CHECKPOINT_VERSION:
        found = f"format_version {content.get('format_version')}, this fsnl reads {CHECKPOINT_VERSION}"
        raise MismatchError(path, f"{found}; update fsnl, or use another --out")
    try:
        differing = _differences(content, identity)
        standing = _standing(content)
    except (LookupError, TypeError, ValueError) as error:
        raise MismatchError(path, f"is no whole checkpoint of fsnl-pretrain; {_ADVICE}") from error
    _refuse(path, differing)
    return standing, content


def check_images(path: Path, content: dict[str, Any], identity: Identity) -> None:
    """The rest of what `load` checks, once the images are known.

    Raises:
        MismatchError: they are others.
    """
    _refuse(path, _differences(content, identity))


def _refuse(path: Path, differing: list[str]) -> None:
    if differing:
        raise MismatchError(path, f"made with {'; '.join(differing)}; {_ADVICE}")


def _standing(content: dict[str, Any]) -> Standing:
    return Standing(
        steps=content["steps"],
        losses=tuple(content["losses"]),
        partial=content["partial_loss"],
        labels_used=LabelsUsed(**content["labels_used"]),
        checks=tuple((int(epoch), first, second) for epoch, first, second in content["checks"]),
    )


def _differences(content: dict[str, Any], identity: Identity) -> list[str]:
    """Each field of what lies there that is not as asked, with both values."""
    asked: dict[str, object] = {
        "split": identity.split,
        "n_images": identity.n_images,
        "images_sha256": identity.images_sha256,
        **asdict(identity.preprocessing),
        **asdict(identity.recipe),
    }
    found = {**content, **content["preprocessing"], **content["recipe"]}
    return [
        f"{name.replace('_', ' ')} {_short(found.get(name))}, asked for {_short(value)}"
        for name, value in asked.items()
        if value is not None and found.get(name) != value
    ]


def _short(value: object) -> str:
    text = str(value)
    return f"{text[:6]}..." if len(text) == 64 else text
