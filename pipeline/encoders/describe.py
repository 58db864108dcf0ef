"""What an encoder is, in lines for the user at the start of a run."""

from fsnl.cache.schema import EncoderInfo, Preprocessing
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.pooling import POOLED


def described(encoder: Encoder) -> tuple[str, str]:
    """One line on the network and what it cost in labels, one on what happens to images before it."""
    return _network(encoder.info, device=encoder.device), _images(encoder.preprocessing)


def _network(info: EncoderInfo, *, device: str) -> str:
    weights = "" if info.weights == "none" else f", weights {info.weights}"
    layer = "" if info.layer in (POOLED, "none") else f", layer {info.layer}"
    labels = info.labels_used.train
    if labels is None:
        cost = "labels seen in training unknown (say them with --labels-used)"
    else:
        cost = f"{labels:,} labels seen in training" if labels else "no labels seen in training"
    return f"encoder {info.name}{weights}{layer}, {info.precision}, on {device}; {cost}"


def _images(preprocessing: Preprocessing) -> str:
    """As the images are prepared; mean and deviation only where they change anything."""
    side = preprocessing.crop
    smoothed = "smoothed" if preprocessing.antialias else "not smoothed"
    cut = f"centre {side} x {side} px"
    if preprocessing.resize == side:
        cut = f"{side} x {side} px"
    else:
        cut = f"shorter side {preprocessing.resize} px, {cut}"
    statistics = ""
    if (preprocessing.mean, preprocessing.std) != ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)):
        mean, deviation = (
            " ".join(f"{value:.4g}" for value in values) for values in (preprocessing.mean, preprocessing.std)
        )
        statistics = f", mean {mean}, deviation {deviation}"
    return f"images {cut}, {preprocessing.interpolation} {smoothed}{statistics}"
