"""timm's networks, and vision transformers found in checkpoints, against timm alone."""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from encoder_cases import MEAN, STD, image_set, library_input, noise
from torch import nn

from fsnl.cache.arrays import F32
from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import LabelsUsed, Preprocessing
from fsnl.pipeline.encoders.pooling import Pool
from fsnl.pipeline.encoders.registry import build_encoder, load_encoder, plan_encoder

timm = pytest.importorskip("timm", reason="an optional package: pip install 'fsnl[encoders]'")
VisionTransformer = timm.models.vision_transformer.VisionTransformer

State = dict[str, torch.Tensor]


def timm_network(name: str, **arguments: object) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network: nn.Module = timm.create_model(name, num_classes=0, **arguments)
    return network.eval()


def forward(network: nn.Module, *, side: int) -> F32:
    with torch.no_grad():
        features: F32 = network(library_input(noise(2, side))).numpy()
    return features


def encode(
    spec: str, *, side: int = 32, weights: str | None = None, layer: str = "pooled", pool: Pool = "auto"
) -> F32:
    encoder = build_encoder(
        spec, image_set(), weights=weights, layer=layer, pool=pool, image_size=side, device="cpu"
    )
    return encoder.encode(noise(2, side))


def close(found: F32, wanted: F32) -> None:
    np.testing.assert_allclose(found, wanted, atol=2e-5 * abs(wanted).max())


@pytest.mark.parametrize(
    ("name", "side", "arguments"),
    [
        ("resnet10t", 32, {}),
        ("vit_tiny_patch16_224", 48, {"img_size": 48}),
        ("mixer_s32_224", 64, {"img_size": 64}),
    ],
)
def test_a_network_of_timm_equals_a_plain_loop_with_timm_alone(
    name: str, side: int, arguments: dict[str, object]
) -> None:
    close(
        encode(f"timm:{name}", side=side, weights="random:0"),
        forward(timm_network(name, **arguments), side=side),
    )


def test_the_tokens_of_a_transformer_are_pooled_by_name() -> None:
    network = timm_network("vit_tiny_patch16_224", img_size=48)
    outputs: list[torch.Tensor] = []
    network.get_submodule("norm").register_forward_hook(lambda _m, _i, output: outputs.append(output))
    forward(network, side=48)
    tokens = outputs[0]
    assert tokens.shape == (2, 1 + 9, 192)
    spec, weights = "timm:vit_tiny_patch16_224", "random:0"
    close(encode(spec, side=48, weights=weights, layer="norm"), tokens[:, 0].numpy())
    close(encode(spec, side=48, weights=weights, layer="norm", pool="mean"), tokens[:, 1:].mean(1).numpy())


def test_the_recipe_of_timm_gives_the_size_and_the_datas_statistics_stay_for_random_weights() -> None:
    plan = plan_encoder("timm:vit_tiny_patch16_224", image_set(), weights="random:0")
    # 224 / 0.9, rounded down
    assert plan.preprocessing == Preprocessing(248, 224, "bilinear", True, MEAN, STD)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("timm:resnet81", r"timm \S+ has no network 'resnet81'; near it: .*resnet18"),
        ("timm:resnet18.a9_in1k", r"has no network 'resnet18\.a9_in1k'; near it: .*resnet18\.a1_in1k"),
        ("timm:hf-hub:someone/net", "has no network 'hf-hub:someone/net'"),
    ],
)
def test_a_network_that_timm_does_not_have_lists_its_neighbours(spec: str, reason: str) -> None:
    with pytest.raises(EncoderError, match=reason):
        encode(spec, weights="random:0")


def test_a_size_that_timm_cannot_build_for_is_named() -> None:
    reason = "timm:vit_tiny_patch16_224 cannot .* images of 3 x 3 pixels.*; try another --image-size"
    with pytest.raises(EncoderError, match=reason):
        encode("timm:vit_tiny_patch16_224", side=3, weights="random:0")


def test_without_timm_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        EncoderError, match=r"^timm:resnet18 needs the package timm: pip install 'fsnl\[encoders\]'"
    ):
        encode("timm:resnet18", weights="random:0")


# --- files for a network of timm


def test_a_file_of_another_image_size_has_its_positions_resized(tmp_path: Path) -> None:
    trained = timm_network("vit_tiny_patch16_224", img_size=64)
    torch.save(
        {"teacher": {f"backbone.{n}": t for n, t in trained.state_dict().items()}}, tmp_path / "vit.pth"
    )
    network = timm_network("vit_tiny_patch16_224", img_size=32)
    filtered = timm.models.vision_transformer.checkpoint_filter_fn(trained.state_dict(), network)
    network.load_state_dict(filtered)
    assert network.pos_embed.shape == (1, 1 + 4, 192)
    wanted = forward(network, side=32)
    close(encode("timm:vit_tiny_patch16_224", weights=str(tmp_path / "vit.pth")), wanted)
    close(encode(f"checkpoint:{tmp_path}/vit.pth"), wanted)


def test_a_safetensors_file_is_read(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    network = timm_network("resnet10t")
    save_file(network.state_dict(), tmp_path / "net.safetensors")
    close(encode("timm:resnet10t", weights=str(tmp_path / "net.safetensors")), forward(network, side=32))
    (tmp_path / "net.safetensors").write_bytes(b"no such thing")
    with pytest.raises(EncoderError, match=r"net\.safetensors: not a safetensors file, or a damaged one"):
        encode("timm:resnet10t", weights=str(tmp_path / "net.safetensors"))


def test_published_weights_are_loaded_as_timm_does_with_their_recipe_and_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import save_file

    published = timm.create_model("vit_tiny_patch16_224", num_classes=1000).eval()
    path = tmp_path / "model.safetensors"
    save_file(published.state_dict(), path)
    asked = []

    def fetched(repository: str, file: str, *, encoder: str) -> tuple[Path, str]:
        asked.append((repository, file, encoder))
        return path, hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr("fsnl.pipeline.encoders.downloads.hugging_face_file", fetched)
    name = "timm:vit_tiny_patch16_224.augreg_in21k"
    plan = plan_encoder(name, image_set(native_size=32), weights="default")
    assert asked == [("timm/vit_tiny_patch16_224.augreg_in21k", "model.safetensors", name)]
    assert plan.info.weights == "vit_tiny_patch16_224.augreg_in21k"
    assert plan.info.labels_used == LabelsUsed(14_197_122, None)
    assert plan.preprocessing == Preprocessing(32, 32, "bicubic", True, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    network = timm_network("vit_tiny_patch16_224", img_size=32)
    filtered = timm.models.vision_transformer.checkpoint_filter_fn(published.state_dict(), network)
    network.load_state_dict(filtered, strict=False)
    images = torch.from_numpy(noise(2, 32)).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        wanted = network((images - 0.5) / 0.5).numpy()
    close(load_encoder(plan, device="cpu").encode(noise(2, 32)), wanted)


def test_a_network_without_published_weights_says_so() -> None:
    with pytest.raises(EncoderError, match="timm has no weights for darknet17; give random"):
        plan_encoder("timm:darknet17", image_set(), weights="default")


# --- vision transformers in checkpoints


def vit(**arguments: object) -> nn.Module:
    """Two blocks of width 192 for images of 32 pixels in patches of 8."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 192, "depth": 2, "num_heads": 3}
        network: nn.Module = VisionTransformer(**{**sizes, "num_classes": 0, **arguments})
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=0.05)
    return network.eval()


def head(*widths: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(widths[0], widths[1]), nn.GELU(), nn.Linear(widths[1], widths[2])).eval()


DINO_HEAD = head(192, 64, 16)
MOCO_HEAD = nn.Sequential(
    nn.Linear(192, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(),
    nn.Linear(64, 32, bias=False), nn.BatchNorm1d(32, affine=False),
).eval()  # fmt: skip


def named(prefix: str, state: State) -> State:
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


Layout = tuple[nn.Module, Callable[[State], dict[str, object]], nn.Module | None]
LAYOUTS: dict[str, Layout] = {
    "plain": (vit(), lambda s: {**s, "head.weight": torch.zeros(9, 192), "head.bias": torch.zeros(9)}, None),
    "DINO": (
        vit(),
        lambda s: {
            "student": named("module.backbone.", {n: t + 1 for n, t in s.items()}),
            "teacher": named("backbone.", s)
            | named("head.mlp.", DINO_HEAD.state_dict())
            | {"head.last_layer.weight_v": torch.rand(99, 16)},
        },
        DINO_HEAD,
    ),
    "MoCo v3": (
        vit(num_heads=12),
        lambda s: {
            "state_dict": named("module.momentum_encoder.", {n: t + 1 for n, t in s.items()})
            | named("module.base_encoder.", s)
            | named("module.base_encoder.head.", MOCO_HEAD.state_dict())
        },
        MOCO_HEAD,
    ),
    "MAE": (
        vit(),
        lambda s: {
            "model": s
            | {"mask_token": torch.zeros(1, 1, 64), "decoder_pos_embed": torch.zeros(1, 17, 64)}
            | named("decoder_blocks.0.", {"norm1.weight": torch.zeros(3), "attn.qkv.bias": torch.zeros(3)})
        },
        None,
    ),
    "layer scale, no class token": (
        vit(init_values=0.1, class_token=False, global_pool="avg", fc_norm=False),
        lambda s: {"model": s},
        None,
    ),
    "no bias of queries, no norm at the end": (vit(qkv_bias=False, final_norm=False), dict, None),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_transformer_in_a_checkpoint_is_read_off_its_shapes(layout: str, tmp_path: Path) -> None:
    network, make, projection = LAYOUTS[layout]
    torch.save(make(network.state_dict()), tmp_path / "vit.pth")
    wanted = forward(network, side=32)
    close(encode(f"checkpoint:{tmp_path}/vit.pth"), wanted)
    if projection is not None:
        with torch.no_grad():
            projected = projection(torch.from_numpy(wanted)).numpy()
        close(encode(f"checkpoint:{tmp_path}/vit.pth", layer="head"), projected)


def test_the_image_size_of_a_transformer_is_that_of_its_positions(tmp_path: Path) -> None:
    torch.save(vit().state_dict(), tmp_path / "vit.pth")
    plan = plan_encoder(f"checkpoint:{tmp_path}/vit.pth", image_set())
    assert (plan.preprocessing.resize, plan.preprocessing.crop) == (32, 32)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (name, change)
        for name in (
            "pos_embed",
            "cls_token",
            "patch_embed.proj.weight",
            "blocks.1.attn.qkv.weight",
            "norm.bias",
        )
        for change in ("renamed", "reshaped")
        if (name, change) != ("cls_token", "renamed")
    ],
)
def test_one_tensor_of_a_transformer_amiss_is_named(name: str, change: str, tmp_path: Path) -> None:
    state = vit().state_dict()
    if change == "renamed":
        state[f"{name}s"] = state.pop(name)
    else:
        state[name] = torch.cat([state[name], state[name]], dim=1 if name == "pos_embed" else 0)
    torch.save(named("module.", state), tmp_path / "vit.pth")
    with pytest.raises(EncoderError, match=f"'module.{name}'"):
        encode(f"checkpoint:{tmp_path}/vit.pth")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"reg_token": torch.zeros(1, 4, 192)}, "beyond the plain one, for it has 'reg_token'"),
        ({"norm_pre.weight": torch.zeros(192)}, "beyond the plain one, for it has 'norm_pre.weight'"),
    ],
)
def test_a_transformer_beyond_the_plain_one_is_asked_for(state: State, reason: str, tmp_path: Path) -> None:
    torch.save({**vit().state_dict(), **state}, tmp_path / "vit.pth")
    with pytest.raises(EncoderError, match=rf"{reason}.*name the network"):
        encode(f"checkpoint:{tmp_path}/vit.pth")
