"""A file of plain torch weights into a network: all of it fits, or the first misfit is named."""

import pickle
import re
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import torch

from fsnl.cache.errors import EncoderError

# How unpicklers that load weights only, of torch 2.0 and later, name what they refuse.
_REFUSED = re.compile(r"(?:GLOBAL|class) ([\w.]+)")

# Names inside torchvision's published DenseNet files, which predate a rule of torch about dots.
_OLD_DENSENET = re.compile(r"(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\.\w+)")


def load_state_dict(network: torch.nn.Module, path: Path, *, unused: tuple[str, ...], encoder: str) -> None:
    """Fill a network from a state dict file.

    Args:
        network: what to fill.
        path: written by `torch.save(other.state_dict(), path)`.
        unused: prefixes of names in the file that the network does without, as its classifier's.
        encoder: the network's name, for errors.

    Raises:
        EncoderError: not such a file, or one of another architecture.
    """
    state = read_state_dict(path)
    for name in list(state):
        tensor = state.pop(name)
        if not name.startswith(unused):
            old = _OLD_DENSENET.fullmatch(name)
            state[old[1] + old[2] if old else name] = tensor
    wanted = network.state_dict()
    differing = [name for name in wanted if name in state and state[name].shape != wanted[name].shape]
    if differing:
        name = differing[0]
        message = (
            f"{path}: tensor {name!r} is {tuple(state[name].shape)}, {encoder} needs "
            f"{tuple(wanted[name].shape)}; {len(differing)} of its {len(wanted)} tensors differ in shape"
        )
        raise EncoderError(message)
    # modules rename what older versions of themselves wrote, by a version that a plain dict lacks
    vars(state).setdefault("_metadata", {"": {"version": getattr(network, "_version", 1)}})
    try:
        keys = network.load_state_dict(state, strict=False)
    except (RuntimeError, ValueError) as error:
        message = f"{path}: does not fit {encoder}: {' '.join(str(error).split())}"
        raise EncoderError(message) from error
    missing = [name for name in keys.missing_keys if not name.endswith("num_batches_tracked")]
    if missing:
        message = f"{path}: lacks {len(missing)} of the tensors that {encoder} needs, first {missing[0]!r}"
        raise EncoderError(message)
    if surplus := keys.unexpected_keys:
        message = f"{path}: holds {len(surplus)} tensors that {encoder} does not have, first {surplus[0]!r}"
        raise EncoderError(message)


def read_state_dict(path: Path) -> "OrderedDict[str, torch.Tensor]":
    """Read names and tensors, running no code that the file may hold.

    Raises:
        EncoderError: not a file of `torch.save`, or it holds something else than named tensors.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise _not_weights(path) from error
        message = (
            f"{path}: refused, for it would run {refused[1]} while loading; "
            "save the network's state_dict() alone"
        )
        raise EncoderError(message) from error
    except Exception as error:
        # bytes that are no pickle make the unpickler fail in any way
        raise _not_weights(path) from error
    if not isinstance(state, Mapping):
        message = f"{path}: holds a {type(state).__name__}, not a state dict; save the network's state_dict()"
        raise EncoderError(message)
    others = [
        str(name)
        for name, value in state.items()
        if not (isinstance(name, str) and isinstance(value, torch.Tensor))
    ]
    if others or not state:
        names = ", ".join(others[:4]) if others else "nothing"
        message = f"{path}: holds {names}, not named tensors alone; save the network's state_dict()"
        raise EncoderError(message)
    return state if isinstance(state, OrderedDict) else OrderedDict(state)


def _not_weights(path: Path) -> EncoderError:
    return EncoderError(f"{path}: not a file that torch.save wrote, or a damaged one")
