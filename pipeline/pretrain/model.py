"""The network that is trained, and the projection head that its training needs."""

import torch
from torch import nn

from fsnl.cache.errors import EncoderError
from fsnl.pipeline.encoders.network import first_line
from fsnl.pipeline.encoders.seeds import seeded
from fsnl.pipeline.encoders.small_networks import small_network
from fsnl.pipeline.encoders.specs import Spec, parse_small
from fsnl.pipeline.encoders.weights import Weights

# Numbers that the loss compares, and at least as many inside the head.
_PROJECTION = 128
_HIDDEN = 512

_TORCHVISION = "torchvision:"


class Model(nn.Module):
    """An encoder and its projection head (Chen et al. 2020, section 2.1: two layers).

    Attributes:
        backbone: (B, 3, S, S) -> (B, D) features.
        projector: (B, D) -> (B, P).
    """

    def __init__(self, backbone: nn.Module, *, n_features: int) -> None:
        super().__init__()
        n_hidden = max(n_features, _HIDDEN)
        self.backbone = backbone
        self.projector = nn.Sequential(
            nn.Linear(n_features, n_hidden, bias=False),
            nn.BatchNorm1d(n_hidden),
            nn.ReLU(inplace=True),
            nn.Linear(n_hidden, _PROJECTION, bias=False),
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, 3, S, S) -> (B, P)."""
        projections: torch.Tensor = self.projector(self.backbone(inputs))
        return projections


def network_name(encoder: str) -> str:
    """A network in one spelling: `resnet10:16`, `conv4:64`, `torchvision:resnet18`.

    >>> network_name("fsnl:resnet10")
    'resnet10:16'

    Raises:
        EncoderError: none of ours.
    """
    if encoder.startswith(_TORCHVISION):
        return encoder
    try:
        network = parse_small(encoder.removeprefix("fsnl:"))
    except EncoderError as error:
        message = f"unknown network {encoder!r}; give resnet10 or conv4, with :WIDTH, or torchvision:NAME"
        raise EncoderError(message) from error
    return f"{network.name}:{network.width or network.default_width}"


def build_model(encoder: str, *, image_size: int, seed: int) -> Model:
    """A network with its head, weights by the seed.

    Args:
        encoder: `resnet10`, `conv4` (either with `:WIDTH`, or `fsnl:` before it) or `torchvision:NAME`.
        image_size: S, which some networks are built for.
        seed: of the weights.

    Raises:
        EncoderError: no such network, or one that cannot take images of S pixels.
    """
    backbone = _backbone(encoder, image_size=image_size, seed=seed)
    backbone.eval()
    try:
        with torch.no_grad():
            n_features = backbone(torch.zeros(1, 3, image_size, image_size)).shape[1]
    except (RuntimeError, ValueError, AssertionError) as error:
        message = (
            f"{encoder} cannot be trained on images of {image_size} x {image_size} pixels: "
            f"{first_line(error)}; try another --image-size"
        )
        raise EncoderError(message) from error
    with seeded(seed):
        return Model(backbone, n_features=n_features).train()


def _backbone(encoder: str, *, image_size: int, seed: int) -> nn.Module:
    if encoder.startswith(_TORCHVISION):
        from fsnl.pipeline.encoders.torchvision import torchvision_backbone

        spec = Spec("torchvision", network=encoder.removeprefix(_TORCHVISION), name=encoder)
        weights = Weights(f"random:{seed}", seed)
        return torchvision_backbone(
            spec.network, image_size=image_size, weights=weights, encoder=encoder
        ).network
    return small_network(parse_small(encoder.removeprefix("fsnl:")), seed=seed)
