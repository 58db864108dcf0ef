"""The named tensors in a file of weights, wherever they lie in it. No code that the file holds is run."""

import argparse
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from fsnl.cache.errors import EncoderError
from fsnl.cache.torch_files import is_torchscript, refused_global, unpacking_refused

# Containers inside containers: {"state": {"model": {...}}} and a little more.
_DEEPEST = 4

_ADVICE = "save the network's state_dict() alone, where you trust the file"


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """What was found in a file.

    Attributes:
        path: the file.
        tensors: by name; the names of the containers that hold a tensor stand before its own, with a dot
            after each, as in `state_dict.module.conv1.weight`.
        versions: by module name (ending in a dot, or empty), the version of the module that wrote it.
    """

    path: Path
    tensors: dict[str, torch.Tensor]
    versions: dict[str, int]


def read_checkpoint(path: Path) -> CheckpointFile:
    """Read what `torch.save` wrote, or a `.safetensors` file; of all else in it nothing is built.

    Tensors, plain containers, and the one class `argparse.Namespace` are read, in which training scripts
    keep their options. The optimiser's state is passed over.

    Raises:
        EncoderError: no such file, none with named tensors, a damaged one, one that asks for other
            classes or functions (the first of these is named), or one made to fill the memory.
    """
    content = read_content(path)
    tensors: dict[str, torch.Tensor] = {}
    versions: dict[str, int] = {}
    if not isinstance(content, Mapping):
        message = (
            f"{path}: holds a {type(content).__name__}, not named tensors; save the network's state_dict()"
        )
        raise EncoderError(message)
    _collect(content, prefix="", depth=0, tensors=tensors, versions=versions)
    if not tensors:
        names = ", ".join(str(name) for name in list(content)[:4]) or "nothing"
        message = f"{path}: holds {names}, and no named tensors; save the network's state_dict()"
        raise EncoderError(message)
    return CheckpointFile(path, tensors, versions)


def read_content(path: Path) -> object:
    """All that a file holds; arguments and errors are those of `read_checkpoint`."""
    if not path.is_file():
        message = f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'}"
        raise EncoderError(message)
    return _safetensors(path) if path.suffix == ".safetensors" else _unpickled(path)


def _collect(
    container: Mapping[object, object],
    *,
    prefix: str,
    depth: int,
    tensors: dict[str, torch.Tensor],
    versions: dict[str, int],
) -> None:
    metadata = getattr(container, "_metadata", None)
    if isinstance(metadata, Mapping):
        for module, facts in metadata.items():
            version = facts.get("version") if isinstance(facts, Mapping) else None
            if isinstance(module, str) and isinstance(version, int):
                versions[f"{prefix}{module}." if module else prefix] = version
    for name, value in container.items():
        if not isinstance(name, str) or (isinstance(value, Mapping) and "optim" in name.lower()):
            continue
        if isinstance(value, torch.Tensor):
            tensors[f"{prefix}{name}"] = value
        elif isinstance(value, Mapping) and depth < _DEEPEST:
            _collect(value, prefix=f"{prefix}{name}.", depth=depth + 1, tensors=tensors, versions=versions)


def _unpickled(path: Path) -> object:
    if refusal := unpacking_refused(path):
        message = f"{path}: {refusal}"
        raise EncoderError(message)
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        name = refused_global(path, error)
        if name is None:
            raise _not_weights(path) from error
        message = f"{path}: refused, for it would run {name} while loading; {_ADVICE}"
        raise EncoderError(message) from error
    except Exception as error:
        # bytes that are no pickle make the unpickler fail in any way
        raise _not_weights(path) from error


def _safetensors(path: Path) -> object:
    try:
        import safetensors.torch
    except ImportError as error:
        message = (
            f"{path}: needs the package safetensors: pip install safetensors, or save it with torch.save"
        )
        raise EncoderError(message) from error
    try:
        return safetensors.torch.load_file(path)
    except Exception as error:
        message = f"{path}: not a safetensors file, or a damaged one"
        raise EncoderError(message) from error


def _not_weights(path: Path) -> EncoderError:
    if is_torchscript(path):
        return EncoderError(f"{path}: holds TorchScript, which is code; {_ADVICE}")
    return EncoderError(f"{path}: not a file that torch.save wrote, or a damaged one")
