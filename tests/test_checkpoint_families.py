"""Checkpoints as self-supervised training publishes them: found, filled, equal to the forward pass alone."""

import argparse
import os
import pickle
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
import torchvision
from encoder_cases import MEAN, STD, image_set, library_input, noise
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from fsnl.cache.arrays import F32
from fsnl.cache.errors import EncoderError, PickleError
from fsnl.pipeline.encoders.registry import build_encoder, load_encoder, plan_encoder
from fsnl.pipeline.encoders.resnet import ResNet, resnet10_layout
from fsnl.pipeline.import_torch import read_torch

State = dict[str, torch.Tensor]
Content = Mapping[str, object]
Network = TypeVar("Network", bound=nn.Module)


def shaken(network: Network, *, seed: int = 0) -> Network:
    """The network with every tensor random, statistics of normalisation too, ready to run."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith("running_var") or (tensor.ndim == 1 and name.endswith("weight")):
                tensor.uniform_(0.5, 1.5, generator=generator)
            elif tensor.is_floating_point():
                tensor.normal_(
                    0, 1 / max(1, tensor[0].numel() if tensor.ndim > 1 else 16) ** 0.5, generator=generator
                )
    return network.eval()


def narrow() -> nn.Module:
    """torchvision's ResNet of one block in each layer, 16 channels at first, that ends in its features."""
    made = torchvision.models.ResNet(BasicBlock, [1, 1, 1, 1])
    made.inplanes = 16
    made.conv1, made.bn1 = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16)
    for number in range(4):
        layer = made._make_layer(BasicBlock, 16 << number, 1, stride=2 if number else 1)
        setattr(made, f"layer{number + 1}", layer)
    made.fc = nn.Identity()
    network: nn.Module = made
    return network


def headless(
    *blocks: int, block: type[nn.Module] = BasicBlock, **arguments: int
) -> torchvision.models.ResNet:
    """A residual network of torchvision that ends in its features."""
    made = torchvision.models.ResNet(block, blocks, **arguments)
    made.fc = nn.Identity()
    return shaken(made)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """A small ResNet-10."""
    return shaken(narrow())


@pytest.fixture(scope="module")
def small_network() -> nn.Module:
    """The same for small images: a 3x3 stem, no max-pooling."""
    made = narrow()
    made.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
    made.maxpool = nn.Identity()
    return shaken(made, seed=1)


def forward(network: nn.Module, *, side: int = 32) -> F32:
    with torch.no_grad():
        features: F32 = network(library_input(noise(3, side))).numpy()
    return features


def encode(spec: str, *, side: int = 32, weights: str | None = None, layer: str = "pooled") -> F32:
    encoder = build_encoder(spec, image_set(), weights=weights, layer=layer, image_size=side, device="cpu")
    return encoder.encode(noise(3, side))


def close(found: F32, wanted: F32) -> None:
    np.testing.assert_allclose(found, wanted, atol=2e-5 * abs(wanted).max())


def prefixed(prefix: str, state: State, **others: State) -> State:
    """Names with a prefix, and those of other networks with theirs."""
    named = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    for other, tensors in others.items():
        named |= {f"{other}.{name}": tensor for name, tensor in tensors.items()}
    return named


def noise_like(state: State) -> State:
    """Another network of the same shapes: momentum encoders, students."""
    generator = torch.Generator().manual_seed(99)
    return {
        n: torch.rand(t.shape, generator=generator) if t.is_floating_point() else t for n, t in state.items()
    }


def mlp(*widths: int, seed: int = 5) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return shaken(nn.Sequential(*layers[:-1]), seed=seed)


def normalised_mlp(*, seed: int = 6) -> nn.Sequential:
    """As in SimSiam, MoCo v3, Barlow Twins and VICReg: no bias before a normalisation, the last one plain."""
    return shaken(
        nn.Sequential(
            nn.Linear(128, 96, bias=False), nn.BatchNorm1d(96), nn.ReLU(),
            nn.Linear(96, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(),
            nn.Linear(64, 48, bias=False), nn.BatchNorm1d(48, affine=False),
        ),
        seed=seed,
    )  # fmt: skip


def numbered(state: State, names: list[str]) -> State:
    """As torch.nn.Sequential(*children) names the same network."""
    order = {name: str(number) for number, name in enumerate(names)}
    return {f"{order[n.partition('.')[0]]}.{n.partition('.')[2]}": t for n, t in state.items()}


CHILDREN = "conv1 bn1 relu maxpool layer1 layer2 layer3 layer4".split()
HEAD = mlp(128, 64, 32)
DEEP_HEAD = normalised_mlp()
LINEAR = shaken(nn.Linear(128, 64), seed=7)
HEAD_STATE, DEEP_STATE, LINEAR_STATE = HEAD.state_dict(), DEEP_HEAD.state_dict(), LINEAR.state_dict()
OPTIMIZER = {"state": {0: {"momentum_buffer": torch.zeros(64, 3, 7, 7)}}, "param_groups": [{"lr": 0.03}]}

# family -> (what its training script saves for a state of the backbone, its projection head)
Family = tuple[Callable[[State], Content], nn.Module | None]
FAMILIES: dict[str, Family] = {
    "torchvision": (lambda s: {**s, "fc.weight": torch.zeros(10, 128), "fc.bias": torch.zeros(10)}, None),
    "DataParallel": (lambda s: {"state_dict": prefixed("module.", s), "optimizer": OPTIMIZER}, None),
    "SimCLR (sthalles)": (
        lambda s: {
            "epoch": 100, "arch": "resnet18",
            "state_dict": prefixed("backbone.", s, **{"backbone.fc": HEAD_STATE}),
            "optimizer": OPTIMIZER,
        },
        HEAD,
    ),
    "SimCLR (Spijkervet)": (lambda s: prefixed("encoder.", s, projector=HEAD_STATE), HEAD),
    "SimCLR (SupContrast)": (
        lambda s: {
            "opt": argparse.Namespace(model="resnet18", cosine=True),
            "model": prefixed(
                "encoder.", {n.replace("downsample", "shortcut"): t for n, t in s.items()}, head=HEAD_STATE
            ),
            "optimizer": OPTIMIZER,
            "epoch": 9,
        },
        HEAD,
    ),
    "SimCLR (leftthomas)": (
        lambda s: prefixed("f.", numbered(s, [n for n in CHILDREN if n != "maxpool"]), g=HEAD_STATE),
        HEAD,
    ),
    "MoCo v1": (
        lambda s: {
            "epoch": 200, "arch": "resnet18",
            "state_dict": prefixed(
                "module.encoder_q.", s,
                **{
                    "module.encoder_q.fc": LINEAR_STATE,
                    "module.encoder_k": noise_like(s),
                    "module.encoder_k.fc": noise_like(LINEAR_STATE),
                    "module": {"queue": torch.rand(128, 64), "queue_ptr": torch.zeros(1, dtype=torch.long)},
                },
            ),
            "optimizer": OPTIMIZER,
        },
        LINEAR,
    ),
    "MoCo v2 without DDP": (
        lambda s: {
            "state_dict": {
                **prefixed("encoder_k.", noise_like(s)),
                **prefixed("encoder_q.", s, **{"encoder_q.fc": HEAD_STATE}),
                "queue": torch.rand(32, 64),
            }
        },
        HEAD,
    ),
    "MoCo v3": (
        lambda s: {
            "epoch": 300, "arch": "resnet18",
            "state_dict": prefixed(
                "module.base_encoder.", s,
                **{
                    "module.base_encoder.fc": DEEP_STATE,
                    "module.momentum_encoder": noise_like(s),
                    "module.predictor": mlp(48, 16, 48).state_dict(),
                },
            ),
        },
        DEEP_HEAD,
    ),
    "SwAV": (
        lambda s: {
            "epoch": 400,
            "state_dict": prefixed(
                "module.", s,
                **{"module.projection_head": HEAD_STATE, "module.prototypes": {"weight": torch.rand(9, 32)}},
            ),
            "optimizer": OPTIMIZER,
        },
        HEAD,
    ),
    "SwAV, published": (lambda s: prefixed("module.", s), None),
    "DINO": (
        lambda s: {
            "student": prefixed("module.backbone.", noise_like(s)),
            "teacher": prefixed(
                "backbone.", s,
                head={f"mlp.{n}": t for n, t in HEAD_STATE.items()}
                | {"last_layer.weight_g": torch.ones(99, 1), "last_layer.weight_v": torch.rand(99, 32)},
            ),
            "optimizer": OPTIMIZER,
            "epoch": 100,
            "args": argparse.Namespace(arch="resnet18", out_dim=65536),
            "dino_loss": {"center": torch.zeros(1, 99)},
        },
        nn.Sequential(HEAD[0], nn.GELU(), HEAD[2]),
    ),
    "SimSiam": (
        lambda s: {
            "epoch": 100, "arch": "resnet18",
            "state_dict": prefixed(
                "module.encoder.", s,
                **{"module.encoder.fc": DEEP_STATE, "module.predictor": mlp(48, 16, 48).state_dict()},
            ),
        },
        DEEP_HEAD,
    ),
    "Barlow Twins": (
        lambda s: {
            "epoch": 1000,
            "model": prefixed(
                "module.backbone.", s,
                **{
                    "module.projector": DEEP_STATE,
                    "module.bn": {"running_mean": torch.zeros(48), "running_var": torch.ones(48)},
                },
            ),
        },
        DEEP_HEAD,
    ),
    "VICReg": (
        lambda s: {"model": prefixed("module.backbone.", s, **{"module.projector": DEEP_STATE})},
        DEEP_HEAD,
    ),
    "lightly": (
        lambda s: {
            "state_dict": prefixed(
                "backbone.", numbered(s, CHILDREN),
                projection_head={f"layers.{n}": t for n, t in HEAD_STATE.items()},
                backbone_momentum=noise_like(numbered(s, CHILDREN)),
            ),
            "pytorch-lightning_version": "2.4.0",
        },
        HEAD,
    ),
    "solo-learn": (
        lambda s: {
            "state_dict": prefixed(
                "backbone.", s,
                projector=HEAD_STATE,
                momentum_backbone=noise_like(s),
                classifier={"weight": torch.zeros(100, 128), "bias": torch.zeros(100)},
            ),
            "hyper_parameters": {"method": "byol", "lr": 0.1},
        },
        HEAD,
    ),
    "solo-learn, older": (lambda s: {"state_dict": prefixed("encoder.", s, projector=HEAD_STATE)}, HEAD),
    "Lightning": (
        lambda s: {"epoch": 9, "global_step": 100, "state_dict": prefixed("model.net.", s), "loops": {}},
        None,
    ),
    "the paper's": (
        lambda s: {
            "option": argparse.Namespace(dataset="miniImageNet", lr=0.03, layers=[1, 2]),
            "model_state_dict": prefixed(
                "module.encoder_q.", s,
                **{"module.encoder_q.fc": HEAD_STATE, "module.encoder_k": noise_like(s)},
            ),
        },
        HEAD,
    ),
}  # fmt: skip


def save(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_of_every_family_gives_the_direct_forward_pass(
    family: str, network: nn.Module, small_network: nn.Module, tmp_path: Path
) -> None:
    # leftthomas's code is for CIFAR: it takes the max-pooling out
    trained = small_network if "leftthomas" in family else network
    make, head = FAMILIES[family]
    path = save(make(trained.state_dict()), tmp_path / "net.pth")
    wanted = forward(trained)
    close(encode(f"checkpoint:{path}"), wanted)
    if head is None:
        if family != "torchvision":  # its classifier passes for a head
            with pytest.raises(
                EncoderError, match=r"no projection head to take as layer 'head': net\.pth holds"
            ):
                encode(f"checkpoint:{path}", layer="head")
        return
    with torch.no_grad():
        projected = head(torch.from_numpy(wanted)).numpy()
    close(encode(f"checkpoint:{path}", layer="head"), projected)


@pytest.mark.parametrize("family", ["MoCo v1", "DINO", "lightly"])
def test_a_named_network_takes_any_of_these_files_too(family: str, tmp_path: Path) -> None:
    network = headless(2, 2, 2, 2)
    path = save(FAMILIES[family][0](network.state_dict()), tmp_path / "net.pth")
    close(encode("torchvision:resnet18", weights=str(path)), forward(network))


@pytest.mark.parametrize(
    ("blocks", "arguments"),
    [
        ((1, 2, 1, 1), {"block": Bottleneck}),
        ((2, 1, 1, 1), {"block": Bottleneck, "width_per_group": 128}),  # wide
        ((1, 1, 2, 1), {"block": Bottleneck, "groups": 32, "width_per_group": 4}),  # ResNeXt
        ((2, 1, 2, 1), {}),
    ],
    ids=["bottleneck", "wide", "groups", "basic"],
)
def test_depth_width_and_groups_are_read_off_the_shapes(
    blocks: tuple[int, ...], arguments: dict[str, Any], tmp_path: Path
) -> None:
    network = headless(*blocks, **arguments)
    path = save(network.state_dict(), tmp_path / "net.pth")
    close(encode(f"checkpoint:{path}", side=40), forward(network, side=40))


def test_a_small_stem_is_read_off_the_shapes_and_so_is_the_image_size(
    small_network: nn.Module, tmp_path: Path
) -> None:
    path = save(small_network.state_dict(), tmp_path / "net.pth")
    close(encode(f"checkpoint:{path}"), forward(small_network))
    plan = plan_encoder(f"checkpoint:{path}", image_set())
    assert (plan.preprocessing.resize, plan.preprocessing.crop) == (32, 32)
    assert (plan.preprocessing.mean, plan.preprocessing.std) == (MEAN, STD)


def test_a_network_of_three_layers_and_odd_widths_is_read_off_the_shapes(tmp_path: Path) -> None:
    class Odd(nn.Module):
        """Width 24 and 40, one and two blocks, as nobody publishes it."""

        def __init__(self) -> None:
            super().__init__()
            block = BasicBlock
            shortcut = nn.Sequential(nn.Conv2d(24, 40, 1, 2, bias=False), nn.BatchNorm2d(40))
            self.conv1, self.bn1 = nn.Conv2d(3, 24, 3, 1, 1, bias=False), nn.BatchNorm2d(24)
            self.layer1 = nn.Sequential(block(24, 24))
            self.layer2 = nn.Sequential(block(24, 40, 2, shortcut), block(40, 40))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            maps = self.layer2(self.layer1(torch.relu(self.bn1(self.conv1(inputs)))))
            averaged: torch.Tensor = maps.mean((2, 3))
            return averaged

    network = shaken(Odd())
    close(encode(f"checkpoint:{save(network.state_dict(), tmp_path / 'net.pth')}"), forward(network))


# --- what is said and what is refused


def notes_of(path: Path) -> list[str]:
    notes: list[str] = []
    load_encoder(
        plan_encoder(f"checkpoint:{path}", image_set(), image_size=32), device="cpu", note=notes.append
    )
    return notes


def test_what_matched_and_what_was_left_over_is_said(network: nn.Module, tmp_path: Path) -> None:
    path = save(FAMILIES["MoCo v1"][0](network.state_dict()), tmp_path / "moco.pth")
    (note,) = notes_of(path)
    # 12 convolutions, of which 3 in shortcuts, and 12 normalisations of 5 tensors; of the other network one
    # tensor of each normalisation is the number of batches it saw
    assert note == (
        "ResNet-10, 16 channels in its first blocks; moco.pth: 72 tensors under "
        "'state_dict.module.encoder_q.' matched, none is missing, "
        "2 of a head; left over: state_dict.module. (64)"
    )


def test_nothing_is_said_to_be_left_over_where_nothing_is(network: nn.Module, tmp_path: Path) -> None:
    (note,) = notes_of(save(network.state_dict(), tmp_path / "net.pth"))
    assert note == "ResNet-10, 16 channels in its first blocks; net.pth: 72 tensors matched, none is missing"


@pytest.mark.parametrize("family", ["torchvision", "MoCo v1", "lightly", "SimCLR (SupContrast)"])
@pytest.mark.parametrize("change", ["missing", "renamed", "reshaped"])
@pytest.mark.parametrize("tensor", ["conv1.weight", "layer1.0.conv1.weight", "layer3.0.downsample.0.weight"])
def test_one_backbone_tensor_amiss_is_named(family: str, change: str, tensor: str, tmp_path: Path) -> None:
    network = ResNet(resnet10_layout(8))
    content = FAMILIES[family][0](network.state_dict())
    state = next((v for k, v in content.items() if k in ("state_dict", "model")), content)
    assert isinstance(state, dict)
    ending = tensor.replace("downsample", "shortcut") if "SupContrast" in family else tensor
    if family == "lightly":
        number = CHILDREN.index(tensor.partition(".")[0])
        ending = f"backbone.{number}.{tensor.partition('.')[2]}"
    name = next(n for n in state if n.endswith(ending) and "momentum" not in n and "encoder_k" not in n)
    if change == "renamed":
        state[f"{name}s"] = state[name]
    elif change == "reshaped":
        state[name] = torch.cat([state[name], state[name][:1]])
    if change != "reshaped":
        del state[name]
    path = save(content, tmp_path / "net.pth")
    reason = "is \\(\\d+, .* needs \\(\\d+," if change == "reshaped" else ""
    with pytest.raises(EncoderError, match=rf"'[\w.]*{re.escape(name)}'.*{reason}"):
        encode(f"checkpoint:{path}")


@pytest.mark.parametrize(
    ("tensor", "other"),
    [
        ("layer4.0.conv2.weight", "layer4.0.conv3.weight"),
        ("layer4.0.bn2.weight", "layer5.0.bn2.weight"),
        ("layer4.0.bn2.weight", "layer4.7.bn2.weight"),
        ("bn1.weight", "bn2.weight"),
    ],
)
def test_a_tensor_by_the_name_of_another_part_is_missed_where_it_belongs(
    network: nn.Module, tensor: str, other: str, tmp_path: Path
) -> None:
    state = dict(network.state_dict())
    state[other] = state.pop(tensor)
    path = save(state, tmp_path / "net.pth")
    with pytest.raises(EncoderError, match=rf"lacks 1 of the tensors .*, first '{re.escape(tensor)}'"):
        encode(f"checkpoint:{path}")


def test_a_whole_shortcut_that_is_missing_is_named(network: nn.Module, tmp_path: Path) -> None:
    state = {name: t for name, t in network.state_dict().items() if "layer4.0.downsample" not in name}
    path = save(state, tmp_path / "net.pth")
    with pytest.raises(EncoderError, match=r"lacks 5 of .*, first 'layer4\.0\.downsample\.0\.weight'"):
        encode(f"checkpoint:{path}")


def test_a_whole_layer_that_is_missing_shows_in_what_the_classifier_takes(
    network: nn.Module, tmp_path: Path
) -> None:
    state = {name: t for name, t in network.state_dict().items() if not name.startswith("layer4")}
    path = save({**state, "fc.weight": torch.zeros(10, 128)}, tmp_path / "net.pth")
    with pytest.raises(EncoderError, match=r"'fc\.weight' takes 128 features, and the last block gives 64"):
        encode(f"checkpoint:{path}")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int8])
def test_numbers_of_another_kind_are_not_cast(network: nn.Module, dtype: torch.dtype, tmp_path: Path) -> None:
    state = dict(network.state_dict())
    state["layer3.0.conv1.weight"] = state["layer3.0.conv1.weight"].to(dtype)
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(EncoderError, match=rf"'layer3\.0\.conv1\.weight' is of {kind}, .* needs floating"):
        encode(f"checkpoint:{save(state, tmp_path / 'net.pth')}")


def test_a_tensor_of_more_axes_is_named(network: nn.Module, tmp_path: Path) -> None:
    state = dict(network.state_dict())
    state["conv1.weight"] = state["conv1.weight"][..., None]
    with pytest.raises(
        EncoderError, match=r"'conv1\.weight' is \(16, 3, 7, 7, 1\), .* needs \(16, 3, 7, 7\)"
    ):
        encode(f"checkpoint:{save(state, tmp_path / 'net.pth')}")


def test_a_tensor_too_many_inside_the_backbone_is_named(network: nn.Module, tmp_path: Path) -> None:
    state = {**network.state_dict(), "layer2.0.se.fc1.weight": torch.zeros(8, 128)}
    path = save(state, tmp_path / "net.pth")
    with pytest.raises(EncoderError, match=r"does not have, first 'layer2\.0\.se\.fc1\.weight'"):
        encode(f"checkpoint:{path}")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (
            {"features.0.weight": torch.zeros(8, 3, 3, 3)},
            "those of no residual network or vision transformer",
        ),
        (
            {"conv1.weight": torch.zeros(8, 3, 3, 3), "conv2.weight": torch.zeros(8, 8, 3, 3)}
            | {"layer1.0.conv1.weight": torch.zeros(8, 8, 3, 3), "layer1.0.bn2.weight": torch.zeros(8)},
            "a residual network beyond the plain one, for it has 'conv2.weight'",
        ),
        (
            {f"layer1.{number}.conv1.weight": torch.zeros(8, 8, 3, 3) for number in (0, 999_999_999)},
            "there is a block number 999999999",
        ),
        (
            {"blocks.0.mlp.fc1.weight": torch.zeros(9, 64)}
            | {f"blocks.{number}.norm1.weight": torch.zeros(64) for number in (0, 999_999_999)},
            "there is a block number 999999999",
        ),
        (
            {"conv1.weight": torch.zeros(8, 3, 5, 5), "layer1.0.conv1.weight": torch.zeros(8, 8, 3, 3)},
            "'conv1.weight' is 5 x 5, and there are layers",
        ),
    ],
)
def test_an_architecture_that_shapes_do_not_tell_is_asked_for(
    state: State, reason: str, tmp_path: Path
) -> None:
    path = save(state, tmp_path / "net.pth")
    with pytest.raises(EncoderError, match=rf"{reason}.*name the network: --encoder torchvision:NAME"):
        encode(f"checkpoint:{path}")


def test_a_checkpoint_takes_no_other_weights_and_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"nowhere\.pth: no such file"):
        plan_encoder(f"checkpoint:{tmp_path}/nowhere.pth", image_set())
    path = save({"a": torch.zeros(1)}, tmp_path / "net.pth")
    with pytest.raises(EncoderError, match=r"checkpoint:net\.pth has no weights to load beside"):
        plan_encoder(f"checkpoint:{path}", image_set(), weights="random:0")


def test_the_identity_of_a_checkpoint_is_its_content_not_its_folder(
    network: nn.Module, tmp_path: Path
) -> None:
    first = save(network.state_dict(), tmp_path / "net.pth")
    (tmp_path / "moved").mkdir()
    second = tmp_path / "moved" / "net.pth"
    second.write_bytes(first.read_bytes())
    plans = [plan_encoder(f"checkpoint:{path}", image_set(), image_size=32) for path in (first, second)]
    assert plans[0].info == plans[1].info
    assert plans[0].info.name == "checkpoint:net.pth"
    assert plans[0].info.labels_used.train is None
    told = plan_encoder(f"checkpoint:{first}", image_set(), image_size=32, labels_used=0)
    assert told.info.labels_used.train == 0


def test_a_head_with_a_number_that_no_network_has_is_no_head(network: nn.Module, tmp_path: Path) -> None:
    state = {
        **network.state_dict(),
        "fc.0.weight": torch.zeros(8, 128),
        "fc.99999999.weight": torch.zeros(8, 8),
    }
    path = save(state, tmp_path / "net.pth")
    with pytest.raises(
        EncoderError, match=r"no projection head to take as layer 'head': net\.pth holds none"
    ):
        encode(f"checkpoint:{path}", layer="head")


class Bomb:
    """Writes a file in whoever unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.path}",)


def test_a_bomb_among_the_options_runs_nothing(network: nn.Module, tmp_path: Path) -> None:
    option = argparse.Namespace(layers=[{"a": Bomb(tmp_path / "ran")}])
    path = save({"option": option, "model_state_dict": network.state_dict()}, tmp_path / "net.pth")
    with pytest.raises(EncoderError, match=r"net\.pth: refused, for it would run (posix|nt)\.system while"):
        encode(f"checkpoint:{path}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_plain_pickle_with_a_bomb_is_refused_by_what_it_asks_for(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "net.pth"
    path.write_bytes(pickle.dumps({"model": Bomb(tmp_path / "ran")}, protocol=protocol))
    with pytest.raises(EncoderError, match=r"net\.pth: refused, for it would run (posix|nt)\.system while"):
        encode(f"checkpoint:{path}")
    with pytest.raises(PickleError, match=r"net\.pth: refused, for it asks for (posix|nt)\.system"):
        read_torch(path)
    assert not (tmp_path / "ran").exists()


def test_torchscript_and_folders_are_called_that(network: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on its way out
        torch.jit.save(torch.jit.trace(network, torch.zeros(1, 3, 32, 32)), path)  # type: ignore[no-untyped-call]
    with pytest.raises(EncoderError, match=r"net\.pt: holds TorchScript, which is code; save the network's"):
        encode(f"checkpoint:{path}")
    with pytest.raises(EncoderError, match="is a folder, not a file"):
        encode(f"checkpoint:{tmp_path}")


def test_an_archive_that_unpacks_to_far_more_than_its_size_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "net.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("archive/data.pkl", "archive/data/0"):
            archive.writestr(name, bytes(20_000_000))
    with pytest.raises(EncoderError, match=r"net\.pth: refused, for its [\d,]+ bytes unpack to 40,000,000"):
        encode(f"checkpoint:{path}")
    with pytest.raises(PickleError, match=r"net\.pth: refused, for its [\d,]+ bytes unpack to 40,000,000"):
        read_torch(path)


def test_only_the_one_class_of_options_is_built(network: nn.Module, tmp_path: Path) -> None:
    content = {"option": argparse.Namespace(a=Path("x")), "model": OrderedDict(network.state_dict())}
    with pytest.raises(EncoderError, match=r"refused, for it would run pathlib\.[\w.]+ while loading"):
        encode(f"checkpoint:{save(content, tmp_path / 'net.pth')}")
