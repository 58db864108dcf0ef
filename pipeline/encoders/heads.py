"""Projection heads of self-supervised training, rebuilt from their tensors."""

import re
from collections.abc import Mapping

import torch
from torch import nn

from fsnl.pipeline.encoders.key_layout import View

# Beside the backbone, and inside it in place of a classifier.
_BESIDE = (
    "projector",
    "projection_head",
    "projection_mlp",
    "projection",
    "proj_head",
    "proj",
    "head",
    "mlp",
    "g",
)
_INSIDE = ("fc", "head", *_BESIDE)

_MOST_LAYERS = 100

# Layers in a sequence are numbered; some heads keep them in a module of their own.
_NUMBERED = re.compile(r"(?:(layers|mlp|net|model)\.)?(\d+)\.(\w+)")


def find_head(tensors: Mapping[str, torch.Tensor], *, view: View) -> tuple[nn.Module | None, set[str]]:
    """The projection head that belongs to a backbone.

    Args:
        tensors: of the checkpoint.
        view: of the backbone in it.

    Returns:
        The head, (B, D) -> (B, D'), or None where none is found; and the names of its tensors.
    """
    parent = view.prefix[: view.prefix.rstrip(".").rfind(".") + 1] if view.prefix else ""
    places = [f"{view.prefix}{name}." for name in _INSIDE]
    if view.prefix:
        places += [f"{parent}{name}." for name in _BESIDE]
    for place in places:
        inside = {name.removeprefix(place): name for name in tensors if name.startswith(place)}
        head = _head(inside, tensors) if inside else None
        if head is not None:
            return head, set(inside.values())
    return None, set()


def _head(inside: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> nn.Module | None:
    """A single linear layer, or a sequence by its numbers: those without tensors are activations."""
    if "weight" in inside:
        return _layer({name: tensors[full] for name, full in inside.items()})
    parts: dict[int, dict[str, torch.Tensor]] = {}
    smooth = False
    for name, full in inside.items():
        if match := _NUMBERED.fullmatch(name):
            parts.setdefault(int(match[2]), {})[match[3]] = tensors[full]
            smooth = smooth or match[1] == "mlp"  # DINO's
    if max(parts, default=0) > _MOST_LAYERS:
        return None
    layers: list[nn.Module] = []
    for number in range(max(parts, default=-1) + 1):
        made = _layer(parts[number]) if number in parts else nn.GELU() if smooth else nn.ReLU()
        if made is None:
            return None
        layers.append(made)
    return nn.Sequential(*layers) if layers else None


def _layer(tensors: Mapping[str, torch.Tensor]) -> nn.Module | None:
    """A linear layer or a batch normalisation, filled; None for anything else."""
    weight, bias = tensors.get("weight"), tensors.get("bias")
    mean, variance = tensors.get("running_mean"), tensors.get("running_var")
    layer: nn.Module
    if mean is not None and variance is not None:
        layer = nn.BatchNorm1d(len(mean), affine=weight is not None)
    elif weight is not None and weight.ndim == 2:
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    else:
        return None
    try:
        layer.load_state_dict(dict(tensors), strict=False)
    except RuntimeError:  # sizes that contradict one another
        return None
    return layer
