"""What `--weights` may name, read without torch: a random start, published weights, or a file."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import LabelsUsed
from fsnl.pipeline.encoders.embedded import EMBEDDED_NETWORK, EMBEDDED_WEIGHTS, EMBEDDED_WIDTH
from fsnl.pipeline.encoders.own_checkpoint import OwnFacts
from fsnl.pipeline.encoders.recipes import Recipe
from fsnl.pipeline.encoders.specs import Kind, Spec, parse_small

DEFAULT = "default"

_RANDOM = "random:"
_NO_LABELS = LabelsUsed(train=0, val=0)

# As torchvision names the published weights of a network: IMAGENET1K_V2.
_PUBLISHED = re.compile(r"[A-Z][A-Z0-9_]+")

# torchvision's file names end in the first digits of the file's digest.
_DIGEST_IN_NAME = re.compile(r".*-([0-9a-f]{8,})\.\w+")

_CHOICES: dict[Kind, str] = {
    "fsnl": "random:SEED (an untrained network), default (of resnet10: what fsnl brings along), "
    "or the path of a checkpoint (.pth, .pt)",
    "torchvision": "random:SEED (an untrained network), default (torchvision's own, downloaded), "
    "or the path of a checkpoint (.pth, .pt)",
    "timm": "random:SEED (an untrained network), default (timm's own, downloaded), "
    "or the path of a checkpoint (.pth, .pt, .safetensors)",
    "python": "random:SEED, or the path of a checkpoint (.pth, .pt), or leave them to the function",
}


@dataclass(frozen=True, slots=True)
class Weights:
    """Where a network's numbers come from.

    Attributes:
        name: `none`, `random:SEED`, the name of published weights, or the file's name without its folder.
        seed: of the random initialisation, None where the numbers come from elsewhere.
        path: of the file, None where there is none, or where published weights are not downloaded yet.
        sha256: hex digest of the file.
        labels_used: what the training cost in labels.
        recipe: how the makers of the weights prepared their images, None where unknown.
        facts: what a checkpoint of `fsnl-pretrain` says of itself, None for all others.
    """

    name: str
    seed: int | None = None
    path: Path | None = None
    sha256: str | None = None
    labels_used: LabelsUsed = _NO_LABELS
    recipe: Recipe | None = None
    facts: OwnFacts | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """Weights that a library offers for download.

    Attributes:
        name: as the library calls them.
        url: where they are; of timm, the repository and the file in it, with a blank between.
        recipe: how images are prepared for them.
        labels: that their training saw, None where unknown.
    """

    name: str
    url: str
    recipe: Recipe
    labels: int | None


def name_weights(spec: Spec, weights: str | None, *, labels_used: int | None) -> Weights:
    """Read the user's word for the weights; of a file, only the digest. Nothing is downloaded.

    Args:
        spec: the encoder they are for.
        weights: `random:SEED`, `default`, a published name, or a path; None where the encoder needs none.
        labels_used: how many labels the training saw, None where that is unknown.

    Raises:
        EncoderError: no weights where there should be some or some where there can be none, no such file,
            no such seed, labels for a network that was not trained.
    """
    if spec.kind == "pixels":
        _refuse_weights(weights, encoder="pixels")
        _refuse_labels(labels_used, encoder="pixels")
        return Weights("none")
    told = LabelsUsed(train=labels_used, val=None)
    if spec.kind == "checkpoint" and spec.path is not None:
        _refuse_weights(weights, encoder=spec.name)
        return _file(spec.path, labels_used=told)
    code = _file(spec.path, labels_used=told) if spec.kind == "python" and spec.path is not None else None
    if code is not None and weights is None:
        return Weights("none", seed=0, sha256=code.sha256, labels_used=told)
    found = _named(spec, weights, labels_used=labels_used)
    if code is None:
        return found
    # the numbers follow from the function as well
    both = hashlib.sha256(f"{code.sha256} {found.sha256}".encode()).hexdigest()
    return Weights(found.name, found.seed, found.path, both, found.labels_used)


def digest_in_name(file_name: str) -> str | None:
    """The first digits of a file's digest as its name says them.

    >>> digest_in_name("resnet50-11ad3fa6.pth")
    '11ad3fa6'
    """
    match = _DIGEST_IN_NAME.fullmatch(file_name)
    return None if match is None else match[1]


def is_as_named(path: Path, *, sha256: str) -> bool:
    """Whether a file's name says the first digits of its digest, and says them right."""
    said = digest_in_name(path.name)
    return said is not None and sha256.startswith(said)


def is_published(weights: Weights) -> bool:
    """Whether they are still to be looked up in a library."""
    return weights.path is None and weights.seed is None and weights.name != "none"


def labels_of_published(published: Published, *, told: LabelsUsed) -> LabelsUsed:
    """What the library's weights cost, by the registry, else by the user's word.

    Raises:
        EncoderError: the two differ.
    """
    if published.labels is None:
        return told
    if told.train not in (None, published.labels):
        message = (
            f"weights {published.name} saw {published.labels} labels in training, not {told.train}; "
            "leave out --labels-used"
        )
        raise EncoderError(message)
    return LabelsUsed(train=published.labels, val=None)


def labels_of_own(facts: OwnFacts, *, told: LabelsUsed, name: str) -> LabelsUsed:
    """What weights of `fsnl-pretrain` cost, by themselves.

    Raises:
        EncoderError: the user says otherwise.
    """
    if told.train not in (None, facts.labels_used.train):
        message = (
            f"{name} saw {facts.labels_used.train} labels in training, as it says itself, not {told.train}; "
            "leave out --labels-used"
        )
        raise EncoderError(message)
    return facts.labels_used


def file_sha256(path: Path) -> str:
    """Hex digest of a file.

    Raises:
        EncoderError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        message = f"weights {path}: {error.strerror or error}"
        raise EncoderError(message) from error
    return digest.hexdigest()


def _named(spec: Spec, weights: str | None, *, labels_used: int | None) -> Weights:
    choices = _CHOICES.get(spec.kind, "")
    if spec.kind == "fsnl" and weights in (None, DEFAULT) and _is_embedded(spec):
        return _file(EMBEDDED_WEIGHTS, labels_used=LabelsUsed(train=labels_used, val=None))
    if weights is None:
        message = f"{spec.name} needs weights: give {choices}"
        raise EncoderError(message)
    if weights.startswith(_RANDOM):
        _refuse_labels(labels_used, encoder=f"{spec.name} with weights {weights}")
        seed = _seed(weights)
        return Weights(f"{_RANDOM}{seed}", seed)
    told = LabelsUsed(train=labels_used, val=None)
    path = Path(weights)
    if not path.is_file():
        published = weights == DEFAULT or (spec.kind == "torchvision" and _PUBLISHED.fullmatch(weights))
        if published and spec.kind == "fsnl":
            message = f"{spec.name} has no weights of its own: give {choices}"
            raise EncoderError(message)
        if published and spec.kind in ("torchvision", "timm"):
            return Weights(weights, labels_used=told)
        message = f"weights {weights!r}: no such file; give {choices}"
        raise EncoderError(message)
    return _file(path, labels_used=told)


def _is_embedded(spec: Spec) -> bool:
    network = parse_small(spec.network)
    return network.name == EMBEDDED_NETWORK and network.width in (None, EMBEDDED_WIDTH)


def _file(path: Path, *, labels_used: LabelsUsed) -> Weights:
    if not path.is_file():
        message = f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'}"
        raise EncoderError(message)
    return Weights(path.name, None, path, file_sha256(path), labels_used)


def _refuse_weights(weights: str | None, *, encoder: str) -> None:
    if weights is not None:
        message = f"{encoder} has no weights to load beside; leave out weights {weights!r}, or name a network"
        raise EncoderError(message)


def _refuse_labels(labels_used: int | None, *, encoder: str) -> None:
    if labels_used:
        message = f"{encoder} was not trained and used 0 labels, not {labels_used}; leave the count out"
        raise EncoderError(message)


def _seed(weights: str) -> int:
    digits = weights.removeprefix(_RANDOM)
    # isdecimal alone would let other scripts' digits through; torch takes 64 bits
    if not (digits.isascii() and digits.isdecimal() and int(digits) < 2**64):
        message = f"weights {weights!r}: SEED must be an integer from 0 to 2**64 - 1, as in random:0"
        raise EncoderError(message)
    return int(digits)
