"""The classification networks of torchvision, up to the feature vector before their classifier."""

import difflib
import math
from pathlib import Path

import torch
import torchvision

from fsnl.cache.errors import EncoderError
from fsnl.pipeline.encoders.checkpoint_file import read_checkpoint
from fsnl.pipeline.encoders.labels import torchvision_labels
from fsnl.pipeline.encoders.network import first_line
from fsnl.pipeline.encoders.readout import Backbone
from fsnl.pipeline.encoders.recipes import Recipe
from fsnl.pipeline.encoders.seeds import seeded
from fsnl.pipeline.encoders.state_dict import fill_network
from fsnl.pipeline.encoders.weights import DEFAULT, Published, Weights

# Networks that are built for one size of image, by the name of that argument.
_SIZE_ARGUMENTS = {"vit": "image_size", "maxvit": "input_size"}

_AUXILIARY = ("googlenet", "inception_v3")

_N_CLASSES = 1000


def torchvision_backbone(name: str, *, image_size: int, weights: Weights, encoder: str) -> Backbone:
    """Build and fill one network.

    Args:
        name: of the network, as `torchvision.models.list_models` has it.
        image_size: S, which vision transformers are built for.
        weights: a random start or a file.
        encoder: the encoder's name, for errors.

    Raises:
        EncoderError: no such network, weights of another architecture, or a size that it cannot be built for.
    """
    network, head = headless_network(name, image_size=image_size, seed=weights.seed or 0)
    n_prefix_tokens = 1 if hasattr(network, "class_token") else 0
    if weights.path is None:
        return Backbone(
            network, removed=head, n_prefix_tokens=n_prefix_tokens, no_head="its weights are random"
        )
    filled = fill_network(
        network,
        read_checkpoint(weights.path),
        encoder=f"{encoder} at {image_size} pixels",
        unused=(f"{head}.",),
        resize=_resized_positions,
    )
    return Backbone(
        network,
        head=filled.head,
        removed=head,
        no_head=f"{weights.path.name} holds none",
        n_prefix_tokens=n_prefix_tokens,
        notes=(filled.note,),
    )


def headless_network(name: str, *, image_size: int, seed: int) -> tuple[torch.nn.Module, str]:
    """A network with fresh weights whose output is the input of its last classification layer.

    The weights are a function of the seed alone; torch's own random state is neither used nor moved.

    Returns:
        The network, and the name of the layer that was taken out.

    Raises:
        EncoderError: no such network, or it cannot be built for this size.
    """
    _check_name(name)
    arguments: dict[str, object] = {"num_classes": _N_CLASSES}
    if size_argument := _SIZE_ARGUMENTS.get(name.split("_")[0]):
        arguments[size_argument] = (image_size, image_size) if name.startswith("maxvit") else image_size
    if name in _AUXILIARY:
        arguments.update(aux_logits=False, init_weights=True)
    try:
        with seeded(seed):
            network: torch.nn.Module = torchvision.models.get_model(name, weights=None, **arguments)
    except (RuntimeError, ValueError, AssertionError) as error:
        message = (
            f"torchvision:{name} cannot be built for images of {image_size} x {image_size} pixels: "
            f"{first_line(error)}; try another --image-size"
        )
        raise EncoderError(message) from error
    head = _last_classifier(network)
    parent, _, attribute = head.rpartition(".")
    setattr(network.get_submodule(parent), attribute, torch.nn.Identity())
    return network, head


def torchvision_recipe(name: str) -> Recipe:
    """The sizes that torchvision resizes the shorter side to, and crops, for its own best weights.

    Raises:
        EncoderError: no such network.
    """
    _check_name(name)
    transforms = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    return Recipe(transforms.resize_size[0], transforms.crop_size[0])


def torchvision_weights(name: str, weights: str) -> Published:
    """What torchvision publishes for a network.

    Args:
        name: of the network.
        weights: `default`, or a name as `IMAGENET1K_V2`.

    Raises:
        EncoderError: no such network, or no such weights of it; the message names those that there are.
    """
    _check_name(name)
    published = torchvision.models.get_model_weights(name)
    if weights == DEFAULT:
        return _published(published.DEFAULT)
    names = [member.name for member in published]
    if weights not in names:
        message = f"torchvision has no weights {weights!r} for {name}; there are {', '.join(names)}"
        raise EncoderError(message)
    return _published(published[weights])


def torchvision_file(name: str, path: Path) -> Published | None:
    """The published weights that a file is, by its name; None for any other file.

    Raises:
        EncoderError: no such network.
    """
    _check_name(name)
    every = torchvision.models.get_model_weights(name)
    return next((_published(m) for m in every if m.url.rpartition("/")[2] == path.name), None)


def _published(member: "torchvision.models.WeightsEnum") -> Published:
    transforms = member.transforms()
    recipe = Recipe(
        transforms.resize_size[0],
        transforms.crop_size[0],
        transforms.interpolation.value,
        tuple(transforms.mean),
        tuple(transforms.std),
    )
    return Published(member.name, member.url, recipe, torchvision_labels(member.name))


def _check_name(name: str) -> None:
    names = torchvision.models.list_models(module=torchvision.models)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=4)
    choices = f"near it: {', '.join(near)}" if near else f"there are {', '.join(names)}"
    message = f"torchvision {torchvision.__version__} has no classification network {name!r}; {choices}"
    raise EncoderError(message)


def _last_classifier(network: torch.nn.Module) -> str:
    """The name of the last layer that has one output per class: what follows it at most averages."""
    layers: list[str] = [
        name
        for name, module in network.named_modules()
        if (isinstance(module, torch.nn.Linear) and module.out_features == _N_CLASSES)
        or (isinstance(module, torch.nn.Conv2d) and module.out_channels == _N_CLASSES)
    ]
    return layers[-1]


def _resized_positions(name: str, tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
    """The position embedding of a vision transformer for other numbers of patches, as torchvision does it."""
    if name != "encoder.pos_embedding" or tensor.ndim != 3 or tensor.shape[::2] != shape[::2]:
        return None
    before, after = math.isqrt(tensor.shape[1] - 1), math.isqrt(shape[1] - 1)
    if before * before != tensor.shape[1] - 1:
        return None
    state = {"encoder.pos_embedding": tensor}
    resize = torchvision.models.vision_transformer.interpolate_embeddings
    resized: torch.Tensor = resize(image_size=after, patch_size=1, model_state=state)["encoder.pos_embedding"]
    return resized
