"""Layers by name, and how the output of one becomes a vector."""

from typing import cast

import numpy as np
import pytest
import torch
import torchvision
from encoder_cases import image_set, library_input, noise
from torch import nn

from fsnl.cache.arrays import F32
from fsnl.cache.errors import EncoderError
from fsnl.pipeline.encoders.pooling import Pool
from fsnl.pipeline.encoders.readout import Backbone, Readout, pooled
from fsnl.pipeline.encoders.registry import build_encoder, plan_encoder

# two images, two channels, maps of 2 x 2
MAPS = torch.arange(16.0).reshape(2, 2, 2, 2)
# one image, a class token and four others of width 2
TOKENS = torch.tensor([[[9.0, 9], [1, 2], [3, 4], [5, 6], [7, 8]]])


@pytest.mark.parametrize(
    ("pool", "wanted"),
    [
        # channel 0 of image 0 is 0 1 2 3, channel 1 is 4 5 6 7
        ("auto", [[1.5, 5.5], [9.5, 13.5]]),
        ("mean", [[1.5, 5.5], [9.5, 13.5]]),
        ("max", [[3, 7], [11, 15]]),
        ("flatten", MAPS.reshape(2, 8).tolist()),
    ],
)
def test_maps_are_pooled_over_positions(pool: Pool, wanted: list[list[float]]) -> None:
    assert pooled(MAPS, pool=pool, n_prefix_tokens=0).tolist() == wanted


def test_maps_with_channels_last_are_told_by_their_equal_sides() -> None:
    maps = torch.rand(3, 5, 2, 2)
    last = maps.permute(0, 2, 3, 1)
    torch.testing.assert_close(
        pooled(last, pool="auto", n_prefix_tokens=0), pooled(maps, pool="auto", n_prefix_tokens=0)
    )


@pytest.mark.parametrize(
    ("pool", "n_prefix_tokens", "wanted"),
    [
        ("auto", 1, [[9, 9]]),
        ("token", 1, [[9, 9]]),
        ("mean", 1, [[4, 5]]),
        ("max", 1, [[7, 8]]),
        ("auto", 0, [[5, 5.8]]),
        ("flatten", 1, TOKENS.reshape(1, 10).tolist()),
    ],
)
def test_sequences_give_their_class_token_or_their_mean(
    pool: Pool, n_prefix_tokens: int, wanted: list[list[float]]
) -> None:
    found = pooled(TOKENS, pool=pool, n_prefix_tokens=n_prefix_tokens)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("output", "pool", "reason"),
    [
        (torch.zeros(2, 3), "mean", "is one vector per image already; leave out --pool mean"),
        (MAPS, "token", r"shape \(2, 2, 2\) per image cannot be pooled by 'token'"),
        (TOKENS, "token", "has no class token; use --pool mean"),
        (torch.zeros(2), "auto", r"shape \(\) per image cannot be pooled"),
        (torch.zeros(2, 1, 1, 1, 1), "auto", r"shape \(1, 1, 1, 1\) per image cannot be pooled"),
    ],
)
def test_what_cannot_be_pooled_says_why(output: torch.Tensor, pool: Pool, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        pooled(output, pool=pool, n_prefix_tokens=0)


def captured(network: nn.Module, layer: str, *, side: int) -> torch.Tensor:
    outputs: list[torch.Tensor] = []
    # cloned: a ReLU in place may follow
    hook = network.get_submodule(layer).register_forward_hook(lambda _m, _i, o: outputs.append(o.clone()))
    with torch.no_grad():
        network(library_input(noise(2, side)))
    hook.remove()
    return outputs[0]


def encode(encoder: str, *, side: int = 32, layer: str = "pooled", pool: Pool = "auto") -> F32:
    made = build_encoder(
        encoder, image_set(), weights="random:0", layer=layer, pool=pool, image_size=side, device="cpu"
    )
    return made.encode(noise(2, side))


@pytest.fixture(scope="module")
def squeezenet() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network: nn.Module = torchvision.models.squeezenet1_1()
    return network.eval()


@pytest.mark.parametrize("layer", ["features.3", "features.4.expand3x3", "features"])
def test_a_layer_by_name_gives_what_it_gives_in_the_library(squeezenet: nn.Module, layer: str) -> None:
    output = captured(squeezenet, layer, side=32)
    np.testing.assert_allclose(
        encode("torchvision:squeezenet1_1", layer=layer), output.mean((2, 3)).numpy(), rtol=1e-4, atol=1e-5
    )
    found = encode("torchvision:squeezenet1_1", layer=layer, pool="flatten")
    np.testing.assert_allclose(found, output.flatten(1).numpy(), rtol=1e-4, atol=1e-5)


def test_layer_and_pooling_are_part_of_the_identity() -> None:
    images = image_set(native_size=32)
    asked: list[tuple[str, Pool]] = [("pooled", "auto"), ("layer3", "auto"), ("layer3", "max")]
    plans = [
        plan_encoder("torchvision:resnet18", images, weights="random:0", layer=layer, pool=pool)
        for layer, pool in asked
    ]
    assert [plan.info.layer for plan in plans] == ["pooled", "layer3", "layer3, max"]


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ("featres.3", r"no layer 'featres\.3'; near it: .*features\.3.*; or give pooled or head"),
        ("xyz", "no layer 'xyz'; at the top there are features, classifier; or give pooled or head"),
        ("head", "no projection head to take as layer 'head': its weights are random"),
        ("classifier.1", r"no projection head to take as layer 'classifier\.1'"),
    ],
)
def test_a_layer_that_is_not_there_says_what_is(layer: str, reason: str) -> None:
    with pytest.raises(EncoderError, match=reason):
        encode("torchvision:squeezenet1_1", layer=layer)


def test_pixels_have_no_layers() -> None:
    with pytest.raises(EncoderError, match="pixels has no layers to choose from"):
        plan_encoder("pixels", image_set(), layer="layer1")
    with pytest.raises(ValueError, match="pool 'sum' is not one of auto, mean"):
        plan_encoder("pixels", image_set(), pool=cast(Pool, "sum"))


class Parts(nn.Module):
    """A network with parts that give no tensor, or are never run."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.idle = nn.ReLU()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        first: torch.Tensor = self.pair(inputs)[0]
        return first


class Pair(nn.Module):
    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return inputs, inputs


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ("pair", "layer 'pair' of parts gives a tuple, not a tensor; name another --layer"),
        ("idle", "layer 'idle' of parts takes no part in the forward pass"),
    ],
)
def test_a_layer_without_a_tensor_is_refused(layer: str, reason: str) -> None:
    network = Readout(Backbone(Parts()), layer=layer, pool="auto", name="parts")
    with pytest.raises(EncoderError, match=reason):
        network(torch.zeros(1, 3, 4, 4))
