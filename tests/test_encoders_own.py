"""fsnl's own small networks, networks of the user's own code, and published weights without a network."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from encoder_cases import MEAN, STD, image_set, library_input, noise
from torch import nn

from fsnl.cache.arrays import F32
from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import LabelsUsed, Preprocessing
from fsnl.pipeline.encoders import downloads
from fsnl.pipeline.encoders.registry import build_encoder, load_encoder, plan_encoder
from fsnl.pipeline.encoders.small_networks import small_network
from fsnl.pipeline.encoders.specs import parse_small, parse_spec


def encode(spec: str, weights: str | None = None, *, side: int = 32) -> F32:
    encoder = build_encoder(spec, image_set(), weights=weights, image_size=side, device="cpu")
    return encoder.encode(noise(3, side))


def forward(network: nn.Module) -> F32:
    with torch.no_grad():
        features: F32 = network.eval()(library_input(noise(3, 32))).numpy()
    return features


# --- fsnl's own


@pytest.mark.parametrize(
    ("network", "n_weights", "dim"),
    [
        # stem 3*16*9 + 32; blocks of two 3x3 convolutions, shortcuts from the second layer on, two numbers
        # of normalisation per channel
        ("resnet10", 307_536, 128),
        ("resnet10:32", 1_226_400, 256),
        # 3*64*9 + 64 and three times 64*64*9 + 64, and normalisations of 128
        ("conv4", 113_088, 256),
    ],
)
def test_our_networks_have_the_size_that_is_said(network: str, n_weights: int, dim: int) -> None:
    made = small_network(parse_small(network), seed=0)
    assert sum(parameter.numel() for parameter in made.parameters()) == n_weights
    assert encode(f"fsnl:{network}", "random:0").shape == (3, dim)


def test_our_random_weights_are_the_seeds() -> None:
    first = encode("fsnl:resnet10", "random:4")
    np.testing.assert_allclose(first, forward(small_network(parse_small("resnet10"), seed=4)), atol=1e-5)
    assert not np.allclose(first, encode("fsnl:resnet10", "random:5"))


@pytest.mark.parametrize("network", ["resnet10", "conv4"])
def test_the_width_of_our_networks_is_that_of_their_weights(network: str, tmp_path: Path) -> None:
    made = small_network(parse_small(network), seed=1, width=24)
    torch.save({"encoder": made.state_dict(), "epoch": 3}, tmp_path / "net.pth")
    found = encode(f"fsnl:{network}", str(tmp_path / "net.pth"))
    np.testing.assert_allclose(found, forward(made), atol=1e-5)
    with pytest.raises(EncoderError, match=rf"net\.pth: tensor .* is \(24, .*fsnl:{network}:16 needs \(16,"):
        encode(f"fsnl:{network}:16", str(tmp_path / "net.pth"))


@pytest.mark.parametrize("spec", ["fsnl:resnet12", "fsnl:resnet10:", "fsnl:resnet10:0", "fsnl:conv4:x"])
def test_a_network_that_we_do_not_have_lists_those_we_have(spec: str) -> None:
    with pytest.raises(EncoderError, match=f"unknown encoder '{spec}'; there are fsnl:resnet10, fsnl:conv4"):
        plan_encoder(spec, image_set(), weights="random:0")


@pytest.mark.parametrize("weights", [None, "default"])
@pytest.mark.parametrize("spec", ["fsnl:conv4", "fsnl:resnet10:32"])
def test_networks_that_we_have_no_weights_for_say_so(spec: str, weights: str | None) -> None:
    problem = f"{spec} needs weights" if weights is None else f"{spec} has no weights of its own"
    with pytest.raises(EncoderError, match=rf"{problem}.*: give random:SEED .*default \(of resnet10"):
        plan_encoder(spec, image_set(), weights=weights)


def test_our_networks_are_made_for_32_pixels() -> None:
    plan = plan_encoder("fsnl:conv4", image_set(), weights="random:0")
    assert plan.preprocessing == Preprocessing(32, 32, "bilinear", True, MEAN, STD)


# --- the user's own


CODE = """
import torch
from beside import WIDTH

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, WIDTH, 5)
    def forward(self, images):
        return self.conv(images)

def net():
    return Net()

def number():
    return 7

def broken():
    return 1 / 0
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("WIDTH = 6\n", encoding="utf-8")
    path = tmp_path / "nets.py"
    path.write_text(CODE, encoding="utf-8")
    return path


def test_a_function_of_the_users_own_gives_its_network(code: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        convolution = nn.Conv2d(3, 6, 5)
    wanted = forward(convolution).mean((2, 3))
    np.testing.assert_allclose(encode(f"python:{code}:net"), wanted, atol=1e-5)
    np.testing.assert_allclose(encode(f"python:{code}:net", "random:0"), wanted, atol=1e-5)
    assert not np.allclose(encode(f"python:{code}:net", "random:1"), wanted)


def test_a_file_fills_a_network_of_the_users_own(code: Path, tmp_path: Path) -> None:
    convolution = nn.Conv2d(3, 6, 5)
    state = {f"module.conv.{name}": tensor for name, tensor in convolution.state_dict().items()}
    torch.save(state, tmp_path / "net.pth")
    found = encode(f"python:{code}:net", str(tmp_path / "net.pth"))
    np.testing.assert_allclose(found, forward(convolution).mean((2, 3)), atol=1e-5)
    del state["module.conv.bias"]
    torch.save(state, tmp_path / "net.pth")
    with pytest.raises(EncoderError, match=r"net\.pth: lacks 1 of .*, first 'module\.conv\.bias'"):
        encode(f"python:{code}:net", str(tmp_path / "net.pth"))


def test_code_and_weights_both_are_the_identity(code: Path, tmp_path: Path) -> None:
    (tmp_path / "net.pth").write_bytes(b"abc")

    def identities() -> list[str | None]:
        words = (None, "random:0", "random:1", str(tmp_path / "net.pth"))
        plans = [plan_encoder(f"python:{code}:net", image_set(native_size=32), weights=w) for w in words]
        assert {plan.info.name for plan in plans} == {"python:nets.py:net"}
        assert [plan.info.weights for plan in plans] == ["none", "random:0", "random:1", "net.pth"]
        return [plan.info.weights_sha256 for plan in plans]

    before = identities()
    code.write_text(f"{CODE}\n# changed\n", encoding="utf-8")
    assert not set(before) & set(identities())
    unknown = plan_encoder(f"python:{code}:net", image_set(native_size=32))
    assert unknown.info.labels_used == LabelsUsed(None, None)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("nets", r"nets\.py has no function 'nets'; there are Net, net, number, broken"),
        ("number", "python:nets.py:number: the function returned a int, not a torch.nn.Module"),
        ("broken", r"raised ZeroDivisionError: division by zero \(.*nets\.py, line 19\)"),
    ],
)
def test_a_function_that_gives_no_network_is_named(function: str, reason: str, code: Path) -> None:
    with pytest.raises(EncoderError, match=reason):
        encode(f"python:{code}:{function}")


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("raise TypeError('odd')", "cannot encode images of 32 x 32 pixels in fp32 on cpu: TypeError: odd$"),
        ("raise SystemExit(0)", "cannot encode images of 32 x 32 pixels in fp32 on cpu: SystemExit: 0$"),
        ("raise ValueError('odd')", "cannot encode images .* in fp32 on cpu: odd; try another --image-size$"),
        ("return images.flatten(1)[:, :0]", r"gives float32 \(1, 0\) for 1 images of one batch, needed"),
        ("return images.flatten(1) * 1j", r"gives complex64 \(1, 3072\) for 1 images of one batch, needed"),
        ("return images.flatten(1)[:1]", r"gives float32 \(1, 3072\) for 3 images of one batch, needed real"),
    ],
)
def test_a_network_that_fails_or_gives_no_vectors_is_named(forward: str, reason: str, tmp_path: Path) -> None:
    lines = [
        "import torch",
        "class Net(torch.nn.Module):",
        "    def forward(self, images):",
        f"        {forward}",
    ]
    (tmp_path / "nets.py").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(EncoderError, match=f"^python:nets.py:Net {reason}"):
        encode(f"python:{tmp_path}/nets.py:Net")


def test_a_network_that_views_its_maps_gets_them_as_plain_torch_has_them(tmp_path: Path) -> None:
    code = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 6, 5)

    def forward(self, images):
        return self.conv(images).view(len(images), -1)
"""
    (tmp_path / "nets.py").write_text(code, encoding="utf-8")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        convolution = nn.Conv2d(3, 6, 5)
    found = encode(f"python:{tmp_path}/nets.py:Net", "random:0")
    np.testing.assert_allclose(found, forward(convolution).reshape(3, -1), atol=1e-5)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("raise SystemExit(0)\n", r"raised SystemExit: 0 \(.*nets\.py, line 1\)"),
        ("def net(:\n", r"SyntaxError: invalid syntax"),
        (
            "import nothing_of_this_name\n",
            r"raised ModuleNotFoundError: No module named 'nothing_of_this_name' \(.*nets\.py, line 1\)",
        ),
    ],
)
def test_a_file_that_does_not_run_says_why(content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(content, encoding="utf-8")
    with pytest.raises(EncoderError, match=reason):
        encode(f"python:{tmp_path}/nets.py:net")


@pytest.mark.parametrize("spec", ["python:nets.py", "python::net", "python:nets.py:", "python:nets.py:a-b"])
def test_a_file_and_a_function_must_both_be_named(spec: str) -> None:
    with pytest.raises(EncoderError, match="must name a file and a function in it, as in python:nets"):
        parse_spec(spec)


def test_a_file_of_code_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"nowhere\.py: no such file"):
        plan_encoder(f"python:{tmp_path}/nowhere.py:net", image_set())


# --- published weights


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file where torchvision believes its ResNet-18 to be published, and an empty cache to fetch it to."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    network = torchvision.models.resnet18()
    torch.save(network.state_dict(), tmp_path / "new.pth")
    digest = hashlib.sha256((tmp_path / "new.pth").read_bytes()).hexdigest()
    path = (tmp_path / "new.pth").rename(tmp_path / f"resnet18-{digest[:8]}.pth")
    member = torchvision.models.ResNet18_Weights.DEFAULT
    monkeypatch.setattr(member.value, "url", path.as_uri(), raising=False)
    return path


def test_default_weights_are_fetched_once_and_bring_their_recipe_and_their_labels(
    published: Path, tmp_path: Path
) -> None:
    images = image_set((50, 50))
    plan = plan_encoder("torchvision:resnet18", images, weights="default")
    assert plan.weights.path == tmp_path / "cache" / "hub" / "checkpoints" / published.name
    assert plan.info.weights == "IMAGENET1K_V1"
    assert plan.info.weights_sha256 == hashlib.sha256(published.read_bytes()).hexdigest()
    assert plan.info.labels_used == LabelsUsed(1_281_167, None)
    assert plan.preprocessing == Preprocessing(
        256, 224, "bilinear", True, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    )
    network = torchvision.models.resnet18()
    network.load_state_dict(torch.load(published, weights_only=True))
    network.fc = nn.Identity()
    published.unlink()
    again = plan_encoder("torchvision:resnet18", images, weights="IMAGENET1K_V1", image_size=32)
    assert again.info == plan.info
    inputs = (
        torch.from_numpy(noise(3, 32)).permute(0, 3, 1, 2) / 255
        - torch.tensor(again.preprocessing.mean).reshape(3, 1, 1)
    ) / torch.tensor(again.preprocessing.std).reshape(3, 1, 1)
    with torch.no_grad():
        wanted = network.eval()(inputs).numpy()
    np.testing.assert_allclose(load_encoder(again, device="cpu").encode(noise(3, 32)), wanted, atol=1e-4)


def test_a_benchmarks_size_goes_before_the_recipes_and_the_recipes_mean_before_the_datas(
    published: Path,
) -> None:
    plan = plan_encoder("torchvision:resnet18", image_set(native_size=84), weights="default")
    assert (plan.preprocessing.resize, plan.preprocessing.crop) == (84, 84)
    assert plan.preprocessing.mean == (0.485, 0.456, 0.406)


def test_the_published_file_itself_is_known_by_its_name_and_digest(published: Path) -> None:
    plan = plan_encoder("torchvision:resnet18", image_set(native_size=32), weights=str(published))
    assert plan.info.labels_used == LabelsUsed(1_281_167, None)
    assert plan.preprocessing.mean == (0.485, 0.456, 0.406)
    renamed = published.rename(published.with_name("resnet18-00000000.pth"))
    plan = plan_encoder("torchvision:resnet18", image_set(native_size=32), weights=str(renamed))
    assert plan.info.labels_used == LabelsUsed(None, None)
    assert plan.preprocessing.mean == MEAN


def test_labels_that_contradict_the_registry_are_refused(published: Path) -> None:
    with pytest.raises(EncoderError, match="IMAGENET1K_V1 saw 1281167 labels in training, not 5"):
        plan_encoder("torchvision:resnet18", image_set(native_size=32), weights="default", labels_used=5)


def test_a_download_that_fails_is_one_line_that_says_what_to_do(published: Path, tmp_path: Path) -> None:
    published.unlink()
    reason = (
        r"published weights of torchvision:resnet18: cannot download file:.*resnet18-\w{8}\.pth: .*No such "
        r"file.*; fetch the file where there is a network and give its path with --weights, or put it at "
    )
    with pytest.raises(EncoderError, match=reason) as caught:
        plan_encoder("torchvision:resnet18", image_set(native_size=32), weights="default")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.pth*"))


def test_a_download_that_is_not_what_its_name_says_is_refused(published: Path, tmp_path: Path) -> None:
    images, content = image_set(native_size=32), published.read_bytes()
    published.write_bytes(b"something else")
    with pytest.raises(EncoderError, match=r"cannot download .*: invalid hash value .*; fetch the file"):
        plan_encoder("torchvision:resnet18", images, weights="default")
    assert not list((tmp_path / "cache").rglob("*.pth*"))
    published.write_bytes(content)
    cached = plan_encoder("torchvision:resnet18", images, weights="default").weights.path
    assert cached is not None
    cached.write_bytes(content[:-1])
    with pytest.raises(EncoderError, match=r"its digest is \w{8}\.\.\., its name says another; delete it"):
        plan_encoder("torchvision:resnet18", images, weights="default")


def test_published_weights_that_are_not_there_list_those_that_are() -> None:
    with pytest.raises(
        EncoderError, match="no weights 'IMAGENET1K_V9' for resnet50; there are IMAGENET1K_V1"
    ):
        plan_encoder("torchvision:resnet50", image_set(), weights="IMAGENET1K_V9")


def test_a_file_of_the_hub_is_held_against_the_name_of_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="comes with timm, an optional package")
    digest = hashlib.sha256(b"abc").hexdigest()
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (tmp_path / "model.safetensors").symlink_to(blobs / digest)
    monkeypatch.setattr(hub, "hf_hub_download", lambda *_, **__: str(tmp_path / "model.safetensors"))
    (blobs / digest).write_bytes(b"abc")
    found = downloads.hugging_face_file("timm/net", "model.safetensors", encoder="timm:net")
    assert found == (tmp_path / "model.safetensors", digest)
    (blobs / digest).write_bytes(b"abd")
    with pytest.raises(EncoderError, match=rf"its digest is \w{{8}}\.\.\., the hub says {digest[:8]}"):
        downloads.hugging_face_file("timm/net", "model.safetensors", encoder="timm:net")
