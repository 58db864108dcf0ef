"""What `--encoder` may say, taken apart; no encoder is looked for yet, and torch is not loaded."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from fsnl.cache.errors import EncoderError

Kind: TypeAlias = Literal["pixels", "fsnl", "torchvision", "timm", "checkpoint", "python"]

KINDS: tuple[Kind, ...] = get_args(Kind)

_SMALL_WIDTHS = {"resnet10": 16, "conv4": 64}

ENCODER_KINDS = (
    "pixels, fsnl:resnet10, fsnl:conv4, torchvision:NAME, timm:NAME, checkpoint:PATH or python:FILE:FUNCTION"
)


@dataclass(frozen=True, slots=True)
class SmallNetwork:
    """One of fsnl's own networks.

    Attributes:
        name: `resnet10` or `conv4`.
        width: channels of its first layer, None for those of its weights, else `default_width`.
    """

    name: str
    width: int | None

    @property
    def default_width(self) -> int:
        """16 for ResNet-10, and 64 for Conv-4 as in the literature."""
        return _SMALL_WIDTHS[self.name]


@dataclass(frozen=True, slots=True)
class Spec:
    """One encoder as the user names it.

    Attributes:
        kind: what comes before the first colon.
        network: of `fsnl`, `torchvision` and `timm`, the network's name; empty otherwise.
        path: of `checkpoint` and `python`, the file; None otherwise.
        function: of `python`, the function; empty otherwise.
        name: the specification with the file's name in place of its path: moving a file changes no encoder.
    """

    kind: Kind
    network: str = ""
    path: Path | None = None
    function: str = ""
    name: str = "pixels"


def parse_spec(text: str) -> Spec:
    """Take a specification apart.

    >>> parse_spec("torchvision:resnet18").network
    'resnet18'
    >>> parse_spec("python:code/nets.py:small").name
    'python:nets.py:small'

    Raises:
        EncoderError: no such kind, or nothing after the colon.
    """
    if text == "pixels":
        return Spec("pixels")
    word, _, rest = text.partition(":")
    kind = next((kind for kind in KINDS if kind == word), None)
    if kind is None or kind == "pixels" or not rest:
        message = f"unknown encoder {text!r}; give {ENCODER_KINDS}"
        raise EncoderError(message)
    if kind == "checkpoint":
        path = Path(rest)
        return Spec(kind, path=path, name=f"{kind}:{path.name}")
    if kind == "python":
        file, _, function = rest.rpartition(":")
        if not file or not function.isidentifier():
            message = (
                f"encoder {text!r} must name a file and a function in it, as in python:nets.py:small_net"
            )
            raise EncoderError(message)
        return Spec(kind, path=Path(file), function=function, name=f"{kind}:{Path(file).name}:{function}")
    return Spec(kind, network=rest, name=text)


def parse_small(network: str) -> SmallNetwork:
    """Which of fsnl's own networks `fsnl:NAME` or `fsnl:NAME:WIDTH` means.

    >>> parse_small("resnet10:32")
    SmallNetwork(name='resnet10', width=32)

    Raises:
        EncoderError: none.
    """
    name, colon, width = network.partition(":")
    sized = width.isascii() and width.isdecimal() and 1 <= int(width) <= 4096
    if name in _SMALL_WIDTHS and (sized or not colon):
        return SmallNetwork(name, int(width) if sized else None)
    names = ", ".join(f"fsnl:{name}" for name in _SMALL_WIDTHS)
    message = f"unknown encoder 'fsnl:{network}'; there are {names}, with :WIDTH for the channels at first"
    raise EncoderError(message)
