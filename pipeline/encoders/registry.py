"""From the user's words to an encoder. A kind's module, and torch with it, is imported when asked for."""

from dataclasses import dataclass

from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import EncoderInfo, Preprocessing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.pixels import PIXELS_INFO, pixels_encoder, pixels_preprocessing, uniform_size
from fsnl.pipeline.encoders.weights import Weights, find_weights, refuse_labels

PRECISIONS = ("fp32", "bf16", "fp16")

ENCODER_KINDS = "pixels, or torchvision:NAME with a classification network, as in torchvision:resnet18"

# Networks halve their input up to five times: images of a smaller benchmark (digits: 8) are enlarged to this.
_SMALLEST_NETWORK_SIZE = 32

_TORCHVISION = "torchvision:"


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """An encoder before it is loaded: all that decides its embeddings, to compare with a store's request.

    Attributes:
        info: name, weights, precision, labels.
        preprocessing: how images are prepared for it.
        weights: where the network's numbers come from, None for `pixels`.
    """

    info: EncoderInfo
    preprocessing: Preprocessing
    weights: Weights | None


def plan_encoder(
    spec: str,
    image_set: ImageSet,
    *,
    weights: str | None = None,
    image_size: int | None = None,
    labels_used: int | None = None,
    precision: str = "fp32",
) -> EncoderPlan:
    """Settle an encoder's identity: reads the weights' digest, and imports no torch where a size is known.

    The size is `image_size`; else the benchmark's own; else, for `pixels`, the images' own where all are
    one square of at most 96 pixels, or 32; for networks, the recipe they were published with.
    `pixels` computes in float32 whatever the precision.

    Args:
        spec: `pixels` or `torchvision:NAME`.
        image_set: its images' size, mean and standard deviation are used where nothing else says.
        weights: `random:SEED` or the path of a state dict; for networks only.
        image_size: side of the square images that the encoder sees.
        labels_used: labels that the weights' training saw, None where unknown.
        precision: `fp32`, `bf16` or `fp16`.

    Raises:
        EncoderError: unknown encoder or weights.
        ValueError: a size or precision that cannot be.
    """
    if image_size is not None and image_size < 1:
        message = f"image_size {image_size} is less than 1"
        raise ValueError(message)
    if precision not in PRECISIONS:
        message = f"precision {precision!r} is not one of {', '.join(PRECISIONS)}"
        raise ValueError(message)
    network = parse_encoder(spec)
    if network is None:
        if weights is not None:
            message = f"pixels has no weights to load; leave out weights {weights!r}, or name a network"
            raise EncoderError(message)
        refuse_labels(labels_used, encoder="pixels")
        size = image_size or image_set.info.native_size or uniform_size(image_set) or 32
        return EncoderPlan(PIXELS_INFO, pixels_preprocessing(size), weights=None)
    found = find_weights(weights, labels_used=labels_used, encoder=spec)
    info = EncoderInfo(
        name=spec,
        weights=found.name,
        weights_sha256=found.sha256,
        layer="pooled",
        precision=precision,
        labels_used=found.labels_used,
    )
    return EncoderPlan(info, _network_preprocessing(network, image_set, image_size=image_size), weights=found)


def load_encoder(plan: EncoderPlan, *, device: str = "auto") -> Encoder:
    """Build what was planned, ready to run.

    Args:
        plan: from `plan_encoder`.
        device: `auto`, `cpu`, `cuda`, `cuda:INDEX` or `mps`; `pixels` runs on the CPU whatever it says.

    Raises:
        EncoderError: unknown network, weights that do not fit it, a device that is not there, images that
            are too small for it.
    """
    network = parse_encoder(plan.info.name)
    if network is None or plan.weights is None:
        return pixels_encoder(plan.preprocessing)
    from fsnl.pipeline.encoders.torchvision import torchvision_encoder

    return torchvision_encoder(
        network,
        info=plan.info,
        preprocessing=plan.preprocessing,
        weights=plan.weights,
        device=device,
    )


def build_encoder(
    spec: str,
    image_set: ImageSet,
    *,
    weights: str | None = None,
    image_size: int | None = None,
    labels_used: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
) -> Encoder:
    """Plan and load an encoder at once; arguments and errors are those of the two steps."""
    plan = plan_encoder(
        spec,
        image_set,
        weights=weights,
        image_size=image_size,
        labels_used=labels_used,
        precision=precision,
    )
    return load_encoder(plan, device=device)


def parse_encoder(spec: str) -> str | None:
    """The network's name in `torchvision:NAME`, None for `pixels`.

    Raises:
        EncoderError: neither.
    """
    if spec == "pixels":
        return None
    if spec.startswith(_TORCHVISION) and spec != _TORCHVISION:
        return spec.removeprefix(_TORCHVISION)
    message = f"unknown encoder {spec!r}; give {ENCODER_KINDS}"
    raise EncoderError(message)


def _network_preprocessing(network: str, image_set: ImageSet, *, image_size: int | None) -> Preprocessing:
    """Mean and deviation of the data set: neither random weights nor a plain file bring their own."""
    native_size = image_set.info.native_size
    if image_size is not None:
        resize = crop = image_size
    elif native_size is not None:
        resize = crop = max(native_size, _SMALLEST_NETWORK_SIZE)
    else:
        from fsnl.pipeline.encoders.torchvision import recipe_sizes

        resize, crop = recipe_sizes(network)
    return Preprocessing(
        resize=resize,
        crop=crop,
        interpolation="bilinear",
        antialias=True,
        mean=image_set.mean,
        std=image_set.std,
    )
