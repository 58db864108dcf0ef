"""fsnl's own small networks for images of about 32 pixels."""

import torch

from fsnl.pipeline.encoders.checkpoint_file import CheckpointFile, read_checkpoint
from fsnl.pipeline.encoders.conv4 import Conv4
from fsnl.pipeline.encoders.key_layout import find_view
from fsnl.pipeline.encoders.readout import Backbone
from fsnl.pipeline.encoders.resnet import ResNet, resnet10_layout
from fsnl.pipeline.encoders.seeds import seeded
from fsnl.pipeline.encoders.specs import SmallNetwork
from fsnl.pipeline.encoders.state_dict import fill_network
from fsnl.pipeline.encoders.weights import Weights

# A tensor whose first side is the width, and a second one should that be missing.
_WIDTH_TENSORS = {"resnet10": ("conv1.weight", "bn1.weight"), "conv4": ("block1.0.weight", "block1.1.weight")}


def small_network(network: SmallNetwork, *, seed: int, width: int | None = None) -> torch.nn.Module:
    """A network of ours with random weights, which follow from the seed.

    Args:
        network: which one.
        seed: of its weights.
        width: channels of the first layer, None for the network's own or its default.
    """
    width = width or network.width or network.default_width
    with seeded(seed):
        return ResNet(resnet10_layout(width)) if network.name == "resnet10" else Conv4(width)


def small_backbone(network: SmallNetwork, *, weights: Weights, encoder: str) -> Backbone:
    """Build and fill a network; its width is that of the file where the user names none.

    Raises:
        EncoderError: weights of another architecture.
    """
    if weights.path is None:
        return Backbone(small_network(network, seed=weights.seed or 0), no_head="its weights are random")
    checkpoint = read_checkpoint(weights.path)
    built = small_network(network, seed=0, width=network.width or _width(network, checkpoint))
    filled = fill_network(built, checkpoint, encoder=encoder)
    return Backbone(built, head=filled.head, no_head=f"{weights.path.name} holds none", notes=(filled.note,))


def _width(network: SmallNetwork, checkpoint: CheckpointFile) -> int | None:
    anchors = _WIDTH_TENSORS[network.name]
    view = find_view(checkpoint.tensors, anchors=anchors, wanted=anchors)
    for anchor in anchors:
        if view is not None and anchor in view.names and checkpoint.tensors[view.names[anchor]].ndim:
            return len(checkpoint.tensors[view.names[anchor]])
    return None
