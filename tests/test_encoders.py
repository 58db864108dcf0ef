"""Encoders: pixels by hand, torchvision against the library alone, every refusal by its message."""

import os
import re
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
import torch
import torchvision
from encoder_cases import MEAN, STD, image_set, library_input, noise

from fsnl.cache.arrays import F32
from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import EncoderInfo, LabelsUsed, Preprocessing
from fsnl.pipeline.encoders.checkpoint_file import read_checkpoint
from fsnl.pipeline.encoders.network import choose_device, exact_float32, network_encoder
from fsnl.pipeline.encoders.pixels import encode_pixels
from fsnl.pipeline.encoders.registry import build_encoder, plan_encoder
from fsnl.pipeline.encoders.state_dict import fill_network


class NetworkArguments(TypedDict, total=False):
    weights: str
    labels_used: int


def library_network(name: str, *, seed: int, **arguments: object) -> torch.nn.Module:
    """The network as a user of torchvision makes it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network: torch.nn.Module = torchvision.models.get_model(name, weights=None, **arguments)
    return network.eval()


def save(state: object, path: Path) -> str:
    torch.save(state, path)
    return str(path)


# --- pixels


def test_pixels_are_red_green_blue_row_by_row_over_255() -> None:
    image = np.array([[[0, 51, 255], [102, 0, 0]], [[1, 2, 3], [255, 255, 204]]], np.uint8)
    # 51/255 = 0.2, 102/255 = 0.4, 204/255 = 0.8
    wanted = [0, 0.2, 1, 0.4, 0, 0, 1 / 255, 2 / 255, 3 / 255, 1, 1, 0.8]
    embeddings = encode_pixels(image[None])
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (1, 12)
    np.testing.assert_array_equal(embeddings[0], np.array(wanted, np.float32))


@pytest.mark.parametrize(
    ("image_size", "native_size", "sizes", "size"),
    [
        (20, 84, [(50, 50)] * 3, 20),
        (None, 84, [(50, 50)] * 3, 84),
        (None, 8, [(8, 8)] * 3, 8),
        (None, None, [(50, 50)] * 3, 50),
        (None, None, [(96, 96)] * 3, 96),
        (None, None, [(97, 97)] * 3, 32),
        (None, None, [(50, 50), (50, 50), (50, 51)], 32),
        (None, None, [(50, 40)] * 3, 32),
        (None, None, [], 32),
    ],
)
def test_the_size_of_pixels_is_asked_for_or_the_benchmarks_or_the_images_own(
    image_size: int | None, native_size: int | None, sizes: list[tuple[int, int]], size: int
) -> None:
    plan = plan_encoder("pixels", image_set(*sizes, native_size=native_size), image_size=image_size)
    assert plan.preprocessing == Preprocessing(size, size, "bilinear", True, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    assert plan.info.labels_used == LabelsUsed(0, 0)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"weights": "random:0"}, "pixels has no weights"),
        ({"labels_used": 7}, "pixels was not trained and used 0 labels, not 7"),
    ],
)
def test_pixels_refuses_what_belongs_to_networks(arguments: NetworkArguments, reason: str) -> None:
    with pytest.raises(EncoderError, match=reason):
        build_encoder("pixels", image_set(), **arguments)


def test_pixels_and_the_plan_of_a_network_need_no_torch() -> None:
    program = """
import sys, tempfile
from fsnl.pipeline.datasets.registry import open_image_set
from fsnl.pipeline.encoders.batches import prepared_batches
from fsnl.pipeline.encoders.registry import build_encoder, plan_encoder
digits = open_image_set("digits", root=None, split="test", class_names=None)
encoder = build_encoder("pixels", digits)
images, _ = next(prepared_batches(digits, encoder.preprocessing, batches=[range(8)], workers=1))
assert encoder.encode(images).shape == (8, 8 * 8 * 3)
plan = plan_encoder("torchvision:resnet18", digits, weights="random:3")
assert plan.info.weights == "random:3" and plan.preprocessing.crop == 32
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# --- what is asked for


@pytest.mark.parametrize("spec", ["resnet18", "pixel", "torchvision", "torchvision:", "pixels:8", ""])
def test_an_unknown_kind_of_encoder_lists_the_kinds(spec: str) -> None:
    with pytest.raises(
        EncoderError, match=f"unknown encoder '{spec}'; give pixels, fsnl:resnet10, .*timm:NAME"
    ):
        build_encoder(spec, image_set())


def test_an_unknown_network_lists_its_neighbours() -> None:
    with pytest.raises(EncoderError, match=r"no classification network 'resnet81'; near it: .*resnet18"):
        build_encoder("torchvision:resnet81", image_set(native_size=32), weights="random:0")


@pytest.mark.parametrize(
    ("weights", "labels_used", "reason"),
    [
        (None, None, r"torchvision:resnet18 needs weights: give random:SEED .* path"),
        ("nowhere.pth", None, r"'nowhere\.pth': no such file; give random:SEED"),
        ("random:", None, "SEED must be an integer"),
        ("random:-1", None, "SEED must be an integer"),
        ("random:18446744073709551616", None, "SEED must be an integer"),
        ("random:0", 50000, "was not trained and used 0 labels, not 50000"),
    ],
)
def test_weights_that_cannot_be_say_what_can(
    weights: str | None, labels_used: int | None, reason: str
) -> None:
    with pytest.raises(EncoderError, match=reason):
        plan_encoder(
            "torchvision:resnet18", image_set(native_size=32), weights=weights, labels_used=labels_used
        )


def test_sizes_and_precisions_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="image_size 0 is less than 1"):
        plan_encoder("pixels", image_set(), image_size=0)
    with pytest.raises(ValueError, match="'fp8' is not one of fp32, bf16, fp16"):
        plan_encoder("pixels", image_set(), precision="fp8")


@pytest.mark.parametrize(
    ("network", "image_size", "native_size", "resize", "crop"),
    [
        ("resnet18", 64, 84, 64, 64),
        ("resnet18", None, 84, 84, 84),
        ("resnet18", None, 8, 32, 32),
        ("resnet18", None, None, 256, 224),
        ("inception_v3", None, None, 342, 299),
    ],
)
def test_the_size_of_a_network_is_asked_for_or_the_benchmarks_or_the_recipes(
    network: str, image_size: int | None, native_size: int | None, resize: int, crop: int
) -> None:
    images = image_set((50, 50), native_size=native_size)
    plan = plan_encoder(f"torchvision:{network}", images, weights="random:0", image_size=image_size)
    assert plan.preprocessing == Preprocessing(resize, crop, "bilinear", True, MEAN, STD)


def test_the_labels_of_a_file_are_unknown_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "net.pth"
    path.write_bytes(b"abc")
    images = image_set(native_size=32)
    plan = plan_encoder("torchvision:resnet18", images, weights=str(path), precision="bf16")
    assert plan.info == EncoderInfo(
        name="torchvision:resnet18",
        weights="net.pth",
        # of "abc", FIPS 180-2 appendix B.1
        weights_sha256="ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        layer="pooled",
        precision="bf16",
        labels_used=LabelsUsed(None, None),
    )
    told = plan_encoder("torchvision:resnet18", images, weights=str(path), labels_used=38400)
    assert told.info.labels_used == LabelsUsed(38400, None)


# --- torchvision


def test_resnet18_equals_a_plain_loop_with_the_library_alone() -> None:
    images = noise(5, 32)
    encoder = build_encoder(
        "torchvision:resnet18", image_set(native_size=32), weights="random:7", device="cpu"
    )
    network = library_network("resnet18", seed=7)
    network.fc = torch.nn.Identity()
    with torch.no_grad():
        wanted = network(library_input(images)).numpy()
    embeddings = encoder.encode(images)
    assert embeddings.dtype == np.float32
    assert encoder.device == "cpu"
    np.testing.assert_allclose(embeddings, wanted, atol=1e-5)


def test_the_rows_do_not_depend_on_the_batch() -> None:
    images = noise(9, 32)
    encoder = build_encoder("torchvision:resnet18", image_set(native_size=32), weights="random:0")
    alone = np.concatenate([encoder.encode(image[None]) for image in images])
    np.testing.assert_allclose(encoder.encode(images), alone, atol=1e-4)
    images.flags.writeable = False
    np.testing.assert_allclose(encoder.encode(images), alone, atol=1e-4)


def test_random_weights_are_the_seeds_and_leave_the_global_state_alone() -> None:
    images = noise(2, 32)

    def embeddings(seed: int) -> F32:
        state = torch.get_rng_state()
        encoder = build_encoder(
            "torchvision:squeezenet1_1", image_set(native_size=32), weights=f"random:{seed}"
        )
        result = encoder.encode(images)
        assert torch.equal(torch.get_rng_state(), state)
        return result

    first = embeddings(2**64 - 1)
    torch.rand(3)
    np.testing.assert_array_equal(embeddings(2**64 - 1), first)
    assert not np.allclose(embeddings(0), first)


# each family's smallest, at a small size, and the layer of it that gives the logits
FAMILIES = [
    ("alexnet", 64, "classifier.6"),
    ("convnext_tiny", 32, "classifier.2"),
    ("densenet121", 32, "classifier"),
    ("efficientnet_b0", 32, "classifier.1"),
    ("googlenet", 32, "fc"),
    ("inception_v3", 75, "fc"),
    ("maxvit_t", 224, "classifier.5"),
    ("mnasnet0_5", 32, "classifier.1"),
    ("mobilenet_v2", 32, "classifier.1"),
    ("mobilenet_v3_small", 32, "classifier.3"),
    ("regnet_y_400mf", 32, "fc"),
    ("resnet50", 32, "fc"),
    ("shufflenet_v2_x0_5", 32, "fc"),
    ("squeezenet1_1", 32, "classifier.1"),
    ("swin_t", 32, "head"),
    ("swin_v2_t", 32, "head"),
    ("vgg11", 32, "classifier.6"),
    ("vit_b_32", 64, "heads.head"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "side", "head"), FAMILIES, ids=[name for name, _, _ in FAMILIES])
def test_every_family_gives_the_input_of_its_classifier(name: str, side: int, head: str) -> None:
    arguments: dict[str, object] = {}
    if name == "vit_b_32":
        arguments = {"image_size": side}
    if name in ("googlenet", "inception_v3"):
        arguments = {"aux_logits": False, "init_weights": True}
    network = library_network(name, seed=1, **arguments)
    inputs = []
    network.get_submodule(head).register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    images = noise(2, side)
    with torch.no_grad():
        network(library_input(images))
    # SqueezeNet classifies every position and averages afterwards
    wanted = inputs[0].mean((2, 3)) if inputs[0].ndim == 4 else inputs[0]
    encoder = build_encoder(
        f"torchvision:{name}", image_set(), weights="random:1", image_size=side, device="cpu"
    )
    embeddings = encoder.encode(images)
    np.testing.assert_allclose(embeddings, wanted.numpy(), rtol=1e-3, atol=1e-4 * abs(embeddings).max())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("inception_v3", "torchvision:inception_v3 cannot encode images of 32 x 32 pixels in fp32 on cpu"),
        ("vit_b_32", "torchvision:vit_b_32 cannot be built for images of 33 x 33 pixels"),
    ],
)
def test_a_size_that_a_network_cannot_take_is_named(name: str, reason: str) -> None:
    side = 33 if name == "vit_b_32" else 32
    with pytest.raises(EncoderError, match=reason):
        build_encoder(f"torchvision:{name}", image_set(), weights="random:0", image_size=side, device="cpu")


# --- state dicts


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    return library_network("mnasnet0_5", seed=5)


def encode_with(weights: str, *, name: str = "mnasnet0_5") -> F32:
    encoder = build_encoder(f"torchvision:{name}", image_set(native_size=32), weights=weights, device="cpu")
    return encoder.encode(noise(3, 32))


def test_a_saved_state_dict_gives_the_embeddings_of_its_network(
    network: torch.nn.Module, tmp_path: Path
) -> None:
    wanted = encode_with("random:5")
    state = network.state_dict()
    np.testing.assert_array_equal(encode_with(save(state, tmp_path / "net.pth")), wanted)
    np.testing.assert_array_equal(encode_with(save(dict(state), tmp_path / "plain.pth")), wanted)
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    np.testing.assert_array_equal(encode_with(str(tmp_path / "old.pth")), wanted)


def test_the_classifier_of_a_file_may_be_another_or_missing(network: torch.nn.Module, tmp_path: Path) -> None:
    wanted = encode_with("random:5")
    state = network.state_dict()
    state["classifier.1.weight"] = torch.zeros(64, 1280)
    state["classifier.1.bias"] = torch.zeros(64)
    np.testing.assert_array_equal(encode_with(save(state, tmp_path / "64.pth")), wanted)
    del state["classifier.1.weight"], state["classifier.1.bias"]
    np.testing.assert_array_equal(encode_with(save(state, tmp_path / "headless.pth")), wanted)


def test_the_old_names_of_published_densenets_are_read(tmp_path: Path) -> None:
    network, other = (
        torchvision.models.DenseNet(growth_rate=2, block_config=(2, 2), num_init_features=4) for _ in "ab"
    )
    # denselayer1.norm1.weight was denselayer1.norm.1.weight, and so on
    old = OrderedDict(
        (re.sub(r"(norm|conv)([12])\.", r"\1.\2.", name), tensor)
        for name, tensor in network.state_dict().items()
    )
    assert "features.denseblock1.denselayer2.conv.2.weight" in old
    path = Path(save(old, tmp_path / "densenet.pth"))
    other.classifier = torch.nn.Identity()
    fill_network(other, read_checkpoint(path), unused=["classifier."], encoder="densenet")
    inputs = library_input(noise(2, 32))
    assert torch.equal(network.classifier(other.eval()(inputs)), network.eval()(inputs))


def test_weights_of_another_architecture_name_the_first_tensor_that_differs(
    network: torch.nn.Module, tmp_path: Path
) -> None:
    weights = save(network.state_dict(), tmp_path / "half.pth")
    reason = (
        r"half\.pth: tensor 'layers\.0\.weight' is \(16, 3, 3, 3\), torchvision:mnasnet0_75 at 32 pixels "
        r"needs \(24, 3, 3, 3\); \d+ of its \d+ tensors differ in shape"
    )
    with pytest.raises(EncoderError, match=reason):
        encode_with(weights, name="mnasnet0_75")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("missing", r"lacks 1 of the tensors that .*:mnasnet0_5 at 32 .*, first 'layers\.3\.weight'"),
        ("surplus", r"holds 1 tensors that .* does not have, first 'layers\.99\.weight'"),
    ],
)
def test_a_tensor_missing_or_left_over_is_named(
    network: torch.nn.Module, tmp_path: Path, change: str, reason: str
) -> None:
    state = network.state_dict()
    if change == "missing":
        del state["layers.3.weight"]
    else:
        state["layers.99.weight"] = torch.zeros(1)
    with pytest.raises(EncoderError, match=reason):
        encode_with(save(state, tmp_path / "net.pth"))


class Bomb:
    """Runs a command in whoever unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.path}",)


def test_a_file_that_would_run_code_runs_none_and_says_which(tmp_path: Path) -> None:
    weights = save({"layers.0.weight": Bomb(tmp_path / "ran")}, tmp_path / "bomb.pth")
    with pytest.raises(EncoderError, match=r"bomb\.pth: refused, for it would run (posix|nt)\.system"):
        encode_with(weights)
    assert not (tmp_path / "ran").exists()


def test_a_pickled_network_is_refused_by_its_class(network: torch.nn.Module, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"would run torchvision\.models\.mnasnet\.MNASNet"):
        encode_with(save(network, tmp_path / "module.pth"))


@pytest.mark.parametrize(
    "content", [b"", b"hello world\n" * 9, b"PK\x03\x04", b"\x80\x04K\x01.", b"\x93NUMPY"]
)
def test_a_file_that_torch_did_not_write_is_said_to_be_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "some.pth"
    path.write_bytes(content)
    with pytest.raises(EncoderError, match=r"some\.pth: (not a file that torch\.save wrote|holds a int)"):
        encode_with(str(path))


def test_a_truncated_file_is_said_to_be_damaged(network: torch.nn.Module, tmp_path: Path) -> None:
    path = Path(save(network.state_dict(), tmp_path / "net.pth"))
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(EncoderError, match=r"net\.pth: not a file that torch\.save wrote, or a damaged one"):
        encode_with(str(path))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"epoch": 3, "state_dict": {}}, "holds epoch, state_dict, and no named tensors"),
        ({3: torch.zeros(1)}, "holds 3, and no named tensors"),
        ({}, "holds nothing, and no named tensors"),
        ([torch.zeros(1)], "holds a list, not named tensors"),
    ],
)
def test_a_file_of_something_else_says_what_it_holds(content: object, reason: str, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=reason):
        encode_with(save(content, tmp_path / "net.pth"))


# --- device and arithmetic


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "cpu:1", "cuda:x"])
def test_a_device_that_is_not_here_says_what_is(device: str) -> None:
    with pytest.raises(EncoderError, match=rf"device '{device}' is not here; there is .*cpu"):
        choose_device(device)


def test_auto_takes_the_fastest_device_there_is() -> None:
    other = "mps" if torch.backends.mps.is_available() else "cpu"
    assert str(choose_device("auto")) == ("cuda:0" if torch.cuda.is_available() else other)


def test_bf16_computes_coarser_and_stores_float32() -> None:
    images, digits = noise(4, 32), image_set(native_size=32)
    exact = build_encoder("torchvision:resnet18", digits, weights="random:0", device="cpu")
    coarse = build_encoder("torchvision:resnet18", digits, weights="random:0", device="cpu", precision="bf16")
    wanted, embeddings = exact.encode(images), coarse.encode(images)
    assert embeddings.dtype == np.float32
    difference = abs(embeddings - wanted).max() / abs(wanted).max()
    assert 1e-5 < difference < 0.05


def test_a_batch_beyond_the_devices_memory_asks_for_a_smaller_one() -> None:
    class Greedy(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if len(inputs) > 1:
                raise torch.cuda.OutOfMemoryError
            return inputs.mean((2, 3))

    plan = plan_encoder("torchvision:resnet18", image_set(native_size=32), weights="random:0")
    encoder = network_encoder(
        Greedy(), info=plan.info, preprocessing=plan.preprocessing, device=torch.device("cpu")
    )
    with pytest.raises(EncoderError, match="8 images do not fit cpu; use a smaller --batch-size"):
        encoder.encode(noise(8, 32))


def test_tf32_is_off_while_a_network_runs_on_cuda_and_as_it_was_afterwards() -> None:
    def flags() -> tuple[bool, bool, bool, bool]:
        cudnn = torch.backends.cudnn
        return cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic, torch.backends.cuda.matmul.allow_tf32

    before = flags()
    with exact_float32(torch.device("cuda")):
        assert flags() == (False, False, True, False)
    assert flags() == before
    with exact_float32(torch.device("cpu")):
        assert flags() == before
