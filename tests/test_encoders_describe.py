"""What is said of an encoder when a run starts."""

from dataclasses import replace

import pytest

from fsnl.cache.schema import EncoderInfo, LabelsUsed, Preprocessing
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.describe import described
from fsnl.pipeline.encoders.pixels import encode_pixels, pixels_encoder, pixels_preprocessing

INFO = EncoderInfo("timm:net", "net.pth", "ab", "layer3, max", "bf16", LabelsUsed(None, None))
RECIPE = Preprocessing(256, 224, "bicubic", True, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_network_and_preparation_are_said() -> None:
    assert described(Encoder(INFO, RECIPE, encode_pixels, "cuda:0")) == (
        "encoder timm:net, weights net.pth, layer layer3, max, bf16, on cuda:0; "
        "labels seen in training unknown (say them with --labels-used)",
        "images shorter side 256 px, centre 224 x 224 px, bicubic smoothed, "
        "mean 0.485 0.456 0.406, deviation 0.229 0.224 0.225",
    )


def test_what_goes_without_saying_is_not_said() -> None:
    assert described(pixels_encoder(pixels_preprocessing(8))) == (
        "encoder pixels, fp32, on cpu; no labels seen in training",
        "images 8 x 8 px, bilinear smoothed",
    )


@pytest.mark.parametrize(
    ("labels", "words"),
    [(0, "no labels seen"), (1_281_167, "1,281,167 labels seen"), (None, "seen in training unknown")],
)
def test_unknown_labels_are_said_to_be_unknown(labels: int | None, words: str) -> None:
    info = replace(INFO, labels_used=LabelsUsed(labels, None))
    network, _ = described(Encoder(info, RECIPE, encode_pixels, "cpu"))
    assert words in network
