"""Encoders of a checkpoint alone: the architecture is read off its tensors."""

from pathlib import Path

import torch

from fsnl.pipeline.encoders.checkpoint_file import read_checkpoint
from fsnl.pipeline.encoders.infer import ViTLayout, check_classifier, infer_architecture
from fsnl.pipeline.encoders.readout import Backbone
from fsnl.pipeline.encoders.recipes import IMAGENET_RECIPE, SMALLEST_NETWORK_SIZE, Recipe
from fsnl.pipeline.encoders.resnet import ResNet, ResNetLayout
from fsnl.pipeline.encoders.state_dict import fill_network


def checkpoint_backbone(path: Path, *, name: str, image_size: int) -> Backbone:
    """Find the network in a checkpoint, build it and fill it.

    Args:
        path: the checkpoint.
        name: the encoder's, for errors.
        image_size: S, which vision transformers are built for.

    Raises:
        EncoderError: a file that is no checkpoint or asks to run code; an architecture that cannot be told;
            tensors of the network that are missing or of another shape.
    """
    checkpoint = read_checkpoint(path)
    view, layout = infer_architecture(checkpoint)
    network: torch.nn.Module
    if isinstance(layout, ViTLayout):
        from fsnl.pipeline.encoders.timm import plain_vit, resized_positions

        network = plain_vit(layout, image_size=image_size, encoder=name)
        n_prefix_tokens, resize = int(layout.class_token), resized_positions(int(layout.class_token))
        filled = fill_network(network, checkpoint, encoder=name, view=view, resize=resize)
    else:
        network, n_prefix_tokens = ResNet(layout), 0
        filled = fill_network(network, checkpoint, encoder=name, view=view)
    check_classifier(checkpoint, view, layout)
    return Backbone(
        network,
        head=filled.head,
        no_head=f"{path.name} holds none",
        n_prefix_tokens=n_prefix_tokens,
        notes=(f"{described(layout)}; {filled.note}",),
    )


def checkpoint_recipe(path: Path) -> Recipe:
    """The image size that a checkpoint's network was made for.

    That of the position embedding of a vision transformer; 32 for a residual network with a small stem;
    else that of ImageNet.

    Raises:
        EncoderError: as `checkpoint_backbone`.
    """
    _, layout = infer_architecture(read_checkpoint(path))
    if isinstance(layout, ViTLayout):
        side = layout.patch * layout.grid
        return IMAGENET_RECIPE if side == IMAGENET_RECIPE.crop else Recipe(side, side)
    if layout.stem_kernel == 3:
        return Recipe(SMALLEST_NETWORK_SIZE, SMALLEST_NETWORK_SIZE)
    return IMAGENET_RECIPE


def described(layout: ResNetLayout | ViTLayout) -> str:
    """An architecture in a few words: `ResNet-18, 3x3 stem without max-pooling`, `ViT of 12 blocks, ...`."""
    if isinstance(layout, ViTLayout):
        return (
            f"ViT of {layout.depth} blocks, width {layout.width}, {layout.n_heads} heads, "
            f"patches of {layout.patch} px"
        )
    stem = ", 3x3 stem without max-pooling" if layout.stem_kernel == 3 else ""
    width = "" if layout.inner[0] == 64 else f", {layout.inner[0]} channels in its first blocks"
    groups = "" if layout.groups == 1 else f", {layout.groups} groups"
    return f"ResNet-{layout.depth}{width}{groups}{stem}"
