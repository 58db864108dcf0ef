"""Odd images on their way to embeddings: each is encoded, or named, and never ends the run without a name."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from fsnl.cache.arrays import F32
from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.registry import open_image_set
from fsnl.pipeline.encoders.batches import batch_rows
from fsnl.pipeline.encoders.registry import build_encoder
from fsnl.pipeline.encoders.streaming import embedded_batches

COLOURS = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)


def encoded(root: Path) -> tuple[tuple[str, ...], F32]:
    images = open_image_set("folder", root=root, split="test", class_names=None)
    encoder = build_encoder("fsnl:resnet10", images, weights="random:0", image_size=32, device="cpu")
    batches = batch_rows(range(len(images.listing.image_ids)), batch_size=2)
    found = embedded_batches(images, encoder, batches=batches, workers=2)
    return images.listing.image_ids, np.concatenate([embeddings for embeddings, _ in found])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.fromarray(COLOURS).save(tmp_path / name / "plain.png")
    return tmp_path


def save_animation(path: Path) -> None:
    frames = [Image.fromarray(COLOURS), Image.new("RGB", (50, 40), "red")]
    frames[0].save(path, save_all=True, append_images=frames[1:], lossless=True)


def save_cmyk_with_profile(path: Path) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.fromarray(COLOURS).convert("CMYK").save(path, quality=95, icc_profile=profile)


@pytest.mark.parametrize(
    ("name", "save"),
    [
        ("animated.webp", save_animation),
        ("cmyk.jpg", save_cmyk_with_profile),
        ("one.png", lambda path: Image.new("RGB", (1, 1), "blue").save(path)),
        ("line.png", lambda path: Image.new("RGB", (1, 5000), "blue").save(path)),
    ],
)
def test_an_odd_image_is_encoded(name: str, save: Callable[[Path], None], root: Path) -> None:
    save(root / "cat" / name)
    ids, embeddings = encoded(root)
    assert [Path(image_id).name for image_id in ids] == [*sorted([name, "plain.png"]), "plain.png"]
    assert np.isfinite(embeddings).all()
    odd, plain = (embeddings[[Path(i).name for i in ids].index(n)] for n in (name, "plain.png"))
    if name == "animated.webp":  # of which the first picture is taken
        np.testing.assert_allclose(odd, plain, atol=1e-5)
    else:
        assert not np.allclose(odd, plain)


def save_200_megapixels(path: Path) -> None:
    """A black PNG of 20,000 x 10,000 pixels in one bit each: 25 kB."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 20_000, 10_000, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(10_000 * (1 + 20_000 // 8)))
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


@pytest.mark.parametrize(
    ("name", "save", "reason"),
    [
        ("huge.png", save_200_megapixels, r"dog/huge\.png: more than 178956970 pixels; scale the image down"),
        ("empty.jpg", lambda path: path.write_bytes(b""), r"dog/empty\.jpg: empty file \(0 bytes\)"),
        ("text.jpg", lambda path: path.write_bytes(b"hello"), r"dog/text\.jpg: not an image"),
    ],
)
def test_an_image_that_cannot_be_used_is_named(
    name: str, save: Callable[[Path], object], reason: str, root: Path
) -> None:
    save(root / "dog" / name)
    with pytest.raises(DatasetError, match=reason):
        encoded(root)
