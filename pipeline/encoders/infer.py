"""The architecture of a network from the names and shapes of its tensors, where these tell it.

Sizes are taken by majority over all tensors that have a say, so that one tensor that was renamed, lost or
changed does not hide what the network is: filling it then names that tensor.
"""

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fsnl.cache.errors import EncoderError
from fsnl.pipeline.encoders.checkpoint_file import CheckpointFile
from fsnl.pipeline.encoders.key_layout import View, find_view
from fsnl.pipeline.encoders.resnet import ResNetLayout

T = TypeVar("T")

_RESNET_ANCHORS = ("layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer2.0.conv1.weight", "conv1.weight")
_VIT_ANCHORS = ("blocks.0.attn.qkv.weight", "blocks.0.norm1.weight", "patch_embed.proj.weight")

_BLOCK = re.compile(r"layer(\d)\.(\d+)\.(\w+)\.(?:\d\.)?(\w+)")
_VIT_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")
_INSIDE_RESNET = r"layer\d\.\d+\.(?:conv|bn)\d\.weight|(?:conv1|bn1)\.weight"
_INSIDE_VIT = r"blocks\.\d+\..+"

# What every residual network has, whatever its layers are called in the checkpoint.
_SURE = {
    f"layer{layer}.0.{part}.weight" for layer in range(1, 5) for part in ("conv1", "bn1", "conv2", "bn2")
}

_MOST_BLOCKS = 200

# Parts beside those that are rebuilt here: with them a network computes something else.
_BEYOND_RESNET = re.compile(r"(?:attnpool|stem)\.")
_FURTHER_STEM = re.compile(r"(conv|bn)[2-9](\..+)")
_BEYOND_VIT = re.compile(
    r"(?:reg_token|register_tokens|storage_tokens|dist_token)$|(?:norm_pre|fc_norm|attn_pool|rope\w*)\."
)

# The first layer of what a network has in place of its classifier.
_CLASSIFIER = re.compile(r"(?:fc|head)\.(?:(?:mlp\.|layers\.|net\.)?0\.)?weight")

# Channels of one attention head in all published sizes but MoCo v3's, which has 12 heads in every size.
_HEAD_CHANNELS = 64
_MOCO_V3 = re.compile(r"(?:^|\.)(?:base|momentum)_encoder\.")

_ASK = (
    "name the network: --encoder torchvision:NAME or timm:NAME with --weights PATH, or python:FILE:FUNCTION"
)


@dataclass(frozen=True, slots=True)
class ViTLayout:
    """What tells one vision transformer from another.

    Attributes:
        width: channels of a token.
        depth: blocks.
        n_heads: of the attention.
        patch: side of a patch in pixels.
        hidden: channels inside the perceptrons.
        grid: patches along one side of the images it was trained on.
        qkv_bias: whether queries, keys and values have a bias.
        class_token: whether there is one.
        layer_scale: whether blocks scale their outputs.
        final_norm: whether tokens are normalised at the end.
    """

    width: int
    depth: int
    n_heads: int
    patch: int
    hidden: int
    grid: int
    qkv_bias: bool
    class_token: bool
    layer_scale: bool
    final_norm: bool


def infer_architecture(checkpoint: CheckpointFile) -> tuple[View, ResNetLayout | ViTLayout]:
    """Find the network in a checkpoint, and what it is.

    Raises:
        EncoderError: the tensors do not tell; the message says how to name the network.
    """
    names = checkpoint.tensors
    vit = find_view(names, anchors=_VIT_ANCHORS, wanted=_ends(names, _INSIDE_VIT))
    if vit is not None and any(_VIT_BLOCK.fullmatch(name) for name in vit.names):
        return vit, _vit_layout(checkpoint, vit)
    resnet = find_view(names, anchors=_RESNET_ANCHORS, wanted=_SURE | _ends(names, _INSIDE_RESNET))
    if resnet is not None and any(_BLOCK.fullmatch(name) for name in resnet.names):
        return resnet, _resnet_layout(checkpoint, resnet)
    raise _unknown(checkpoint, "its tensors are those of no residual network or vision transformer")


def _ends(names: Iterable[str], pattern: str) -> set[str]:
    """The ends of names, from the start or after a dot, that match."""
    ending = re.compile(rf"(?:^|(?<=\.))(?:{pattern})$")
    return {match[0] for name in names if (match := ending.search(name))}


def _resnet_layout(checkpoint: CheckpointFile, view: View) -> ResNetLayout:
    shapes = _shapes(checkpoint, view)
    parts: dict[int, dict[int, set[str]]] = {}
    inner: dict[int, list[int]] = {}
    outer: dict[int, list[int]] = {}
    groups: list[int] = []
    found = [(_BLOCK.fullmatch(name), shape) for name, shape in shapes.items()]
    matches = [(match, shape) for match, shape in found if match and shape]
    blocks = _whole_blocks((match[1], match[2]) for match, _ in matches)
    n_third = sum(match[0].endswith("conv3.weight") for match, _ in matches)
    bottleneck = 2 * n_third > len(blocks)
    last = "3" if bottleneck else "2"
    for match, shape in matches:
        if (match[1], match[2]) not in blocks:
            continue
        layer, block, module = int(match[1]), int(match[2]), match[3]
        parts.setdefault(layer, {}).setdefault(block, set()).add(module)
        if module in ("conv1", "bn1"):
            inner.setdefault(layer, []).append(shape[0])
        elif module in (f"bn{last}", f"conv{last}"):
            outer.setdefault(layer, []).append(shape[0])
        if module == "conv2" and len(shape) == 4 and bottleneck:
            groups.append(max(1, shape[0] // max(1, shape[1])))
    if beyond := next((name for name in shapes if _is_beyond_resnet(name, shapes)), None):
        raise _unknown(checkpoint, f"a residual network beyond the plain one, for it has {beyond!r}")
    layers = sorted(parts)
    _check_numbers(checkpoint, [block for of_layer in parts.values() for block in of_layer])
    stem = [shape for name, shape in shapes.items() if name.startswith(("conv1.", "bn1.")) and shape]
    first = shapes.get("conv1.weight", ())
    kernel = first[-1] if len(first) == 4 else 7
    if (
        kernel not in (3, 7)
        or not layers
        or layers != list(range(1, len(layers) + 1))
        or not {*inner} == {*outer} == {*layers}
    ):
        stem_name = view.in_file("conv1.weight")
        raise _unknown(checkpoint, f"{stem_name!r} is {kernel} x {kernel}, and there are layers {layers}")
    # From the second layer on the first block halves the map: beside it there must be a convolution.
    return ResNetLayout(
        stem_kernel=kernel,
        stem_width=_majority(shape[0] for shape in stem),
        inner=tuple(_majority(inner[layer]) for layer in layers),
        outer=tuple(_majority(outer[layer]) for layer in layers),
        shortcuts=tuple(
            tuple(
                (block == 0 and layer > 1) or "downsample" in parts[layer].get(block, ())
                for block in range(max(parts[layer]) + 1)
            )
            for layer in layers
        ),
        bottleneck=bottleneck,
        groups=_majority(groups) if groups else 1,
    )


def _vit_layout(checkpoint: CheckpointFile, view: View) -> ViTLayout:
    shapes = _shapes(checkpoint, view)
    blocks = [(int(m[1]), m[2], shape) for name, shape in shapes.items() if (m := _VIT_BLOCK.fullmatch(name))]
    whole = _whole_blocks(number for number, _, _ in blocks)
    blocks = [block for block in blocks if block[0] in whole]
    vectors = [shape[0] for _, part, shape in blocks if part.startswith(("norm1.", "norm2.")) and shape]
    beyond = next((name for name in shapes if _BEYOND_VIT.match(name)), None)
    if not vectors or beyond is not None:
        raise _unknown(checkpoint, f"a vision transformer beyond the plain one, for it has {beyond!r}")
    width = _majority(vectors)
    hidden = [shape[0] for _, part, shape in blocks if part.startswith("mlp.fc1.") and shape]
    moco_v3 = _MOCO_V3.search(view.prefix) is not None
    if not hidden or width % (12 if moco_v3 else _HEAD_CHANNELS):
        raise _unknown(checkpoint, f"a vision transformer of width {width}, whose heads cannot be told")
    _check_numbers(checkpoint, [number for number, _, _ in blocks])
    positions = shapes.get("pos_embed", (1, 0, width))
    class_token = "cls_token" in shapes or (len(positions) == 3 and _is_square(positions[1] - 1))
    patch = shapes.get("patch_embed.proj.weight", (width, 3, 16, 16))
    return ViTLayout(
        width=width,
        depth=1 + max(number for number, _, _ in blocks),
        n_heads=12 if moco_v3 else width // _HEAD_CHANNELS,
        patch=patch[-1],
        hidden=_majority(hidden),
        grid=round(max(1, positions[1] - class_token) ** 0.5) if len(positions) == 3 else 1,
        qkv_bias=any(part == "attn.qkv.bias" for _, part, _ in blocks),
        class_token=class_token,
        layer_scale=any(part.startswith("ls1.") for _, part, _ in blocks),
        final_norm=any(name.startswith("norm.") for name in shapes),
    )


def check_classifier(checkpoint: CheckpointFile, view: View, layout: ResNetLayout | ViTLayout) -> None:
    """Hold the classifier, or what is in its place, against the features that the last block gives.

    Raises:
        EncoderError: it takes others: whole blocks are missing, or this is another network.
    """
    n_features = layout.width if isinstance(layout, ViTLayout) else layout.outer[-1]
    for name, full in view.names.items():
        shape = checkpoint.tensors[full].shape
        if _CLASSIFIER.fullmatch(name) and len(shape) == 2 and shape[1] != n_features:
            found = f"{full!r} takes {shape[1]} features, and the last block gives {n_features}"
            raise _unknown(checkpoint, found)


def _is_beyond_resnet(name: str, names: Container[str]) -> bool:
    """Whether a tensor is of a part that plain networks lack, not one of theirs by a wrong name."""
    further = _FURTHER_STEM.fullmatch(name)
    return bool(_BEYOND_RESNET.match(name)) or (further is not None and f"{further[1]}1{further[2]}" in names)


def _whole_blocks(numbers: Iterable[T]) -> set[T]:
    """The blocks that are there, by the number of each of their tensors.

    A few tensors by themselves are strays with a wrong number.
    """
    sizes = Counter(numbers)
    largest = max(sizes.values(), default=0)
    return {block for block, size in sizes.items() if 2 * size >= largest}


def _check_numbers(checkpoint: CheckpointFile, blocks: Iterable[int]) -> None:
    """Refuse numbers that no network has: as many blocks would be built."""
    if (highest := max(blocks, default=0)) > _MOST_BLOCKS:
        raise _unknown(checkpoint, f"there is a block number {highest}")


def _shapes(checkpoint: CheckpointFile, view: View) -> Mapping[str, tuple[int, ...]]:
    return {name: tuple(checkpoint.tensors[full].shape) for name, full in view.names.items()}


def _is_square(number: int) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number


def _majority(sizes: Iterable[int]) -> int:
    return Counter(sizes).most_common(1)[0][0]


def _unknown(checkpoint: CheckpointFile, found: str) -> EncoderError:
    first = ", ".join(list(checkpoint.tensors)[:3])
    return EncoderError(f"{checkpoint.path}: cannot tell the architecture: {found} (first {first}); {_ASK}")
