"""The networks of timm (PyTorch Image Models), an optional package, up to their feature vector."""

import difflib
import math
from types import ModuleType
from typing import Any

import torch

from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import Interpolation
from fsnl.pipeline.encoders.checkpoint_file import read_checkpoint
from fsnl.pipeline.encoders.infer import ViTLayout
from fsnl.pipeline.encoders.labels import timm_labels
from fsnl.pipeline.encoders.network import first_line
from fsnl.pipeline.encoders.readout import Backbone
from fsnl.pipeline.encoders.recipes import Recipe
from fsnl.pipeline.encoders.seeds import seeded
from fsnl.pipeline.encoders.state_dict import Resize, fill_network
from fsnl.pipeline.encoders.weights import Published, Weights

_INTERPOLATIONS: dict[str, Interpolation] = {
    "bilinear": "bilinear",
    "bicubic": "bicubic",
    "lanczos": "lanczos",
    "nearest": "nearest",
}

# The file that timm's own repositories on the hub keep weights in.
_HUB_FILE = "model.safetensors"


def timm_backbone(name: str, *, image_size: int, weights: Weights, encoder: str) -> Backbone:
    """Build and fill one network.

    Args:
        name: of the network, as `timm.list_models` has it, with or without a tag for published weights.
        image_size: S, which networks of a fixed size are built for.
        weights: a random start, published weights that were downloaded, or a file.
        encoder: the encoder's name, for errors.

    Raises:
        EncoderError: timm is not installed, has no such network, or cannot build it for this size; weights of
            another architecture.
    """
    if weights.recipe is not None and weights.path is not None:
        # timm knows how its own files differ from its networks
        tensors = read_checkpoint(weights.path).tensors
        overlay = {"state_dict": tensors, "custom_load": False}
        network = _created(
            name, image_size=image_size, seed=0, pretrained=True, pretrained_cfg_overlay=overlay
        )
        return Backbone(network, no_head="published weights have none", n_prefix_tokens=_prefix(network))
    network = _created(name, image_size=image_size, seed=weights.seed or 0)
    if weights.path is None:
        return Backbone(network, no_head="its weights are random", n_prefix_tokens=_prefix(network))
    classifier = getattr(network, "pretrained_cfg", {}).get("classifier") or ()
    filled = fill_network(
        network,
        read_checkpoint(weights.path),
        encoder=f"{encoder} at {image_size} pixels",
        unused=[f"{part}." for part in ((classifier,) if isinstance(classifier, str) else classifier)],
        resize=resized_positions(_position_prefix(network)),
    )
    return Backbone(
        network,
        head=filled.head,
        no_head=f"{weights.path.name} holds none",
        n_prefix_tokens=_prefix(network),
        notes=(filled.note,),
    )


def timm_recipe(name: str) -> Recipe:
    """The sizes that timm resizes the shorter side to, and crops, for the weights of this name.

    Raises:
        EncoderError: timm is not installed or has no such network.
    """
    published = _recipe(_configuration(name))
    return Recipe(published.resize, published.crop)


def timm_weights(name: str) -> Published:
    """What timm publishes under this name.

    Raises:
        EncoderError: timm is not installed, has no such network, or no weights for it.
    """
    configuration = _configuration(name)
    tag = configuration.tag or ""
    full = f"{configuration.architecture}.{tag}" if tag else name
    if configuration.hf_hub_id:
        url = f"{configuration.hf_hub_id} {configuration.hf_hub_filename or _HUB_FILE}"
    elif isinstance(configuration.url, str) and configuration.url:
        url = configuration.url
    else:
        message = f"timm has no weights for {name}; give random:SEED or a file"
        raise EncoderError(message)
    return Published(full, url, _recipe(configuration), timm_labels(tag))


def plain_vit(layout: ViTLayout, *, image_size: int, encoder: str) -> torch.nn.Module:
    """A vision transformer of this layout, with random weights and no classifier.

    Raises:
        EncoderError: timm is not installed, or the images are smaller than a patch.
    """
    timm = _timm(encoder)
    if image_size < layout.patch:
        message = f"{encoder}: images of {image_size} pixels are smaller than its patches of {layout.patch}"
        raise EncoderError(message)
    with seeded(0):
        network: torch.nn.Module = timm.models.vision_transformer.VisionTransformer(
            img_size=image_size,
            patch_size=layout.patch,
            embed_dim=layout.width,
            depth=layout.depth,
            num_heads=layout.n_heads,
            mlp_ratio=layout.hidden / layout.width,
            qkv_bias=layout.qkv_bias,
            init_values=1e-5 if layout.layer_scale else None,
            class_token=layout.class_token,
            global_pool="token" if layout.class_token else "avg",
            fc_norm=False,
            final_norm=layout.final_norm,
            num_classes=0,
        )
    return network


def resized_positions(n_prefix_tokens: int) -> Resize:
    """What adapts a square position embedding to another number of patches, as timm does it."""

    def resize(name: str, tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
        if name != "pos_embed" or tensor.ndim != 3 or tensor.shape[::2] != shape[::2]:
            return None
        before, after = (math.isqrt(max(0, size[1] - n_prefix_tokens)) for size in (tensor.shape, shape))
        if before * before != tensor.shape[1] - n_prefix_tokens or before == 0:
            return None
        layers = _timm("a position embedding").layers
        resized: torch.Tensor = layers.resample_abs_pos_embed(
            tensor, [after, after], num_prefix_tokens=n_prefix_tokens
        )
        return resized

    return resize


def _created(name: str, *, image_size: int, seed: int, **arguments: object) -> torch.nn.Module:
    configuration = _configuration(name)
    if configuration.fixed_input_size:
        arguments["img_size"] = image_size
    try:
        with seeded(seed):
            network: torch.nn.Module = _timm(name).create_model(name, num_classes=0, **arguments)
    except (RuntimeError, ValueError, AssertionError, TypeError, KeyError) as error:
        message = (
            f"timm:{name} cannot be built for images of {image_size} x {image_size} pixels: "
            f"{first_line(error)}; try another --image-size"
        )
        raise EncoderError(message) from error
    return network


def _configuration(name: str) -> Any:
    """timm's record of published weights, which also says how images are prepared."""
    timm = _timm(f"timm:{name}")
    architecture, _, tag = name.partition(".")
    if timm.is_model(architecture) and (not tag or timm.is_model_pretrained(name)):
        return timm.get_pretrained_cfg(name)
    names = (
        timm.list_models() if not timm.is_model(architecture) else timm.list_pretrained(f"{architecture}.*")
    )
    near = difflib.get_close_matches(name, names, n=4)
    choices = f"near it: {', '.join(near)}" if near else "timm.list_models() lists them all"
    message = f"timm {timm.__version__} has no network {name!r}; {choices}"
    raise EncoderError(message)


def _recipe(configuration: Any) -> Recipe:
    side = configuration.input_size[-1]
    return Recipe(
        resize=max(side, math.floor(side / configuration.crop_pct)),
        crop=side,
        interpolation=_INTERPOLATIONS.get(configuration.interpolation, "bicubic"),
        mean=tuple(configuration.mean),
        std=tuple(configuration.std),
    )


def _prefix(network: torch.nn.Module) -> int:
    """Tokens before those of the image: timm's networks say it where they have any."""
    number = getattr(network, "num_prefix_tokens", 0)
    return number if isinstance(number, int) else 0


def _position_prefix(network: torch.nn.Module) -> int:
    """How many of them have a position."""
    return 0 if getattr(network, "no_embed_class", False) else _prefix(network)


def _timm(encoder: str) -> ModuleType:
    try:
        import timm
        import timm.layers
        import timm.models.vision_transformer
    except ImportError as error:
        message = f"{encoder} needs the package timm: pip install 'fsnl[encoders]', or pip install timm"
        raise EncoderError(message) from error
    module: ModuleType = timm
    return module
