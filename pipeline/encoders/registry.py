"""From the user's words to an encoder. A kind's module, and torch with it, is imported when asked for."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import EncoderInfo, Preprocessing
from fsnl.pipeline.datasets.base import ImageSet
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.own_checkpoint import own_facts
from fsnl.pipeline.encoders.pixels import PIXELS_INFO, pixels_encoder, pixels_preprocessing, uniform_size
from fsnl.pipeline.encoders.pooling import POOLED, POOLS, Pool, described_layer
from fsnl.pipeline.encoders.recipes import (
    IMAGENET_RECIPE,
    SMALLEST_NETWORK_SIZE,
    Recipe,
    network_preprocessing,
    settled_size,
)
from fsnl.pipeline.encoders.specs import Spec, parse_small, parse_spec
from fsnl.pipeline.encoders.weights import (
    Published,
    Weights,
    is_as_named,
    is_published,
    labels_of_own,
    labels_of_published,
    name_weights,
)

PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """An encoder before it is loaded: all that decides its embeddings, to compare with a store's request.

    Attributes:
        spec: which encoder.
        info: name, weights, layer, precision, labels.
        preprocessing: how images are prepared for it.
        weights: where the network's numbers come from.
        layer: `pooled`, `head` or a module's name.
        pool: how the layer's output becomes one vector.
    """

    spec: Spec
    info: EncoderInfo
    preprocessing: Preprocessing
    weights: Weights
    layer: str = POOLED
    pool: Pool = "auto"


def plan_encoder(
    encoder: str,
    image_set: ImageSet,
    *,
    weights: str | None = None,
    layer: str = POOLED,
    pool: Pool = "auto",
    image_size: int | None = None,
    labels_used: int | None = None,
    precision: str = "fp32",
) -> EncoderPlan:
    """Settle an encoder's identity: weights are found and their digest read, downloaded ones fetched.

    The size is `image_size`; else the benchmark's own; else, for `pixels`, the images' own where all are
    one square of at most 96 pixels, or 32; for networks, the recipe they were published with. Mean and
    deviation are those of the weights where they bring their own, else the data set's.
    torch is imported only where a recipe, or published weights, must be looked up.
    `pixels` computes in float32 whatever the precision.

    Args:
        encoder: see `ENCODER_KINDS`.
        image_set: its images' size, mean and standard deviation are used where nothing else says.
        weights: `random:SEED`, `default`, a published name, or the path of a checkpoint.
        layer: `pooled`, `head`, or the name of a module of the network.
        pool: how its output becomes one vector per image.
        image_size: side of the square images that the encoder sees.
        labels_used: labels that the weights' training saw, None where unknown.
        precision: `fp32`, `bf16` or `fp16`.

    Raises:
        EncoderError: unknown encoder or weights; weights that cannot be downloaded.
        ValueError: a size, pooling or precision that cannot be.
    """
    _check_arguments(image_size=image_size, precision=precision, pool=pool)
    spec = parse_spec(encoder)
    found = name_weights(spec, weights, labels_used=labels_used)
    if spec.kind == "pixels":
        if layer != POOLED or pool != "auto":
            message = "pixels has no layers to choose from; leave out --layer and --pool, or name a network"
            raise EncoderError(message)
        size = image_size or image_set.info.native_size or uniform_size(image_set) or 32
        return EncoderPlan(spec, PIXELS_INFO, pixels_preprocessing(size), found)
    if spec.kind == "fsnl":
        parse_small(spec.network)
    found = _looked_up(spec, found)
    recipe = found.recipe
    if recipe is None and settled_size(image_set, image_size=image_size) is None:
        recipe = _recipe(spec)
    info = EncoderInfo(
        name=spec.name,
        weights=found.name,
        weights_sha256=found.sha256,
        layer=described_layer(layer, pool=pool),
        precision=precision,
        labels_used=found.labels_used,
    )
    preprocessing = network_preprocessing(image_set, image_size=image_size, recipe=recipe or IMAGENET_RECIPE)
    return EncoderPlan(spec, info, preprocessing, found, layer, pool)


def load_encoder(
    plan: EncoderPlan, *, device: str = "auto", note: Callable[[str], None] = lambda text: None
) -> Encoder:
    """Build what was planned, ready to run.

    Args:
        plan: from `plan_encoder`.
        device: `auto`, `cpu`, `cuda`, `cuda:INDEX` or `mps`; `pixels` runs on the CPU whatever it says.
        note: takes lines for the user: what a checkpoint held, what would be faster.

    Raises:
        EncoderError: unknown network or layer, weights that do not fit it, a device that is not there,
            images that are too small for it.
    """
    if plan.spec.kind == "pixels":
        return pixels_encoder(plan.preprocessing)
    from fsnl.pipeline.encoders.kinds import network_of_plan

    return network_of_plan(
        plan.spec,
        plan.info,
        plan.preprocessing,
        plan.weights,
        layer=plan.layer,
        pool=plan.pool,
        device=device,
        note=note,
    )


def build_encoder(
    encoder: str,
    image_set: ImageSet,
    *,
    weights: str | None = None,
    layer: str = POOLED,
    pool: Pool = "auto",
    image_size: int | None = None,
    labels_used: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
) -> Encoder:
    """Plan and load an encoder at once; arguments and errors are those of the two steps."""
    plan = plan_encoder(
        encoder,
        image_set,
        weights=weights,
        layer=layer,
        pool=pool,
        image_size=image_size,
        labels_used=labels_used,
        precision=precision,
    )
    return load_encoder(plan, device=device)


def _check_arguments(*, image_size: int | None, precision: str, pool: str) -> None:
    if image_size is not None and image_size < 1:
        message = f"image_size {image_size} is less than 1"
        raise ValueError(message)
    for word, value, choices in (("precision", precision, PRECISIONS), ("pool", pool, POOLS)):
        if value not in choices:
            message = f"{word} {value!r} is not one of {', '.join(choices)}"
            raise ValueError(message)


def _looked_up(spec: Spec, weights: Weights) -> Weights:
    """Weights that a library publishes, or ours, with what is known of them; others as they are."""
    if weights.path is not None and spec.kind != "python":
        facts = own_facts(weights.path)
        if facts is not None:
            labels = labels_of_own(facts, told=weights.labels_used, name=weights.name)
            return replace(weights, recipe=facts.recipe, labels_used=labels, facts=facts)
    if spec.kind == "torchvision" and weights.path is not None and weights.sha256 is not None:
        if not is_as_named(weights.path, sha256=weights.sha256):
            return weights
        from fsnl.pipeline.encoders.torchvision import torchvision_file

        known = torchvision_file(spec.network, weights.path)
        return weights if known is None else _known(weights, known)
    if not is_published(weights):
        return weights
    from fsnl.pipeline.encoders.downloads import hugging_face_file, torch_hub_file

    published = _published(spec, weights)
    repository, blank, file = published.url.partition(" ")
    if blank:
        path, sha256 = hugging_face_file(repository, file, encoder=spec.name)
    else:
        path, sha256 = torch_hub_file(published.url, encoder=spec.name)
    return _known(replace(weights, name=published.name, path=path, sha256=sha256), published)


def _known(weights: Weights, published: Published) -> Weights:
    labels = labels_of_published(published, told=weights.labels_used)
    return replace(weights, recipe=published.recipe, labels_used=labels)


def _published(spec: Spec, weights: Weights) -> Published:
    if spec.kind == "timm":
        from fsnl.pipeline.encoders.timm import timm_weights

        return timm_weights(spec.network)
    from fsnl.pipeline.encoders.torchvision import torchvision_weights

    return torchvision_weights(spec.network, weights.name)


def _recipe(spec: Spec) -> Recipe:
    """The image size that a network was made for, where neither user nor benchmark gives one."""
    if spec.kind == "torchvision":
        from fsnl.pipeline.encoders.torchvision import torchvision_recipe

        return torchvision_recipe(spec.network)
    if spec.kind == "timm":
        from fsnl.pipeline.encoders.timm import timm_recipe

        return timm_recipe(spec.network)
    if spec.kind == "checkpoint" and spec.path is not None:
        from fsnl.pipeline.encoders.checkpoint import checkpoint_recipe

        return checkpoint_recipe(spec.path)
    if spec.kind == "fsnl":
        return Recipe(SMALLEST_NETWORK_SIZE, SMALLEST_NETWORK_SIZE)
    return IMAGENET_RECIPE
