"""What `--weights` may name, read without torch: a random start, or a file with its digest."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import LabelsUsed

WEIGHTS_CHOICES = "random:SEED (an untrained network), or the path of a torchvision state dict (.pth, .pt)"

_RANDOM = "random:"


@dataclass(frozen=True, slots=True)
class Weights:
    """Where a network's numbers come from; one of `seed` and `path` is set.

    Attributes:
        name: `random:SEED`, or the file's name without its folder.
        seed: of the random initialisation.
        path: of the state dict.
        sha256: hex digest of the file.
        labels_used: what the training cost in labels.
    """

    name: str
    seed: int | None
    path: Path | None
    sha256: str | None
    labels_used: LabelsUsed


def find_weights(weights: str | None, *, labels_used: int | None, encoder: str) -> Weights:
    """Read the user's word for the weights; of a file, only the digest.

    Args:
        weights: `random:SEED` or a path.
        labels_used: how many labels the file's training saw, None where that is unknown.
        encoder: the network they are for, named in errors.

    Raises:
        EncoderError: no weights, no such file, no such seed, labels for a network that was not trained.
    """
    if weights is None:
        message = f"{encoder} needs weights: give {WEIGHTS_CHOICES}"
        raise EncoderError(message)
    if weights.startswith(_RANDOM):
        refuse_labels(labels_used, encoder=f"{encoder} with weights {weights}")
        seed = _seed(weights)
        return Weights(f"{_RANDOM}{seed}", seed, None, None, LabelsUsed(train=0, val=0))
    path = Path(weights)
    if not path.is_file():
        message = f"weights {weights!r}: no such file; give {WEIGHTS_CHOICES}"
        raise EncoderError(message)
    return Weights(path.name, None, path, _file_sha256(path), LabelsUsed(train=labels_used, val=None))


def refuse_labels(labels_used: int | None, *, encoder: str) -> None:
    """Refuse a label count for an encoder that was not trained.

    Raises:
        EncoderError: `labels_used` is neither None nor 0.
    """
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


def _file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        message = f"weights {path}: {error.strerror or error}"
        raise EncoderError(message) from error
    return digest.hexdigest()
