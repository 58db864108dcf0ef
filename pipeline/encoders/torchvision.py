"""The classification networks of torchvision, up to the feature vector before their classifier."""

import difflib

import torch
import torchvision

from fsnl.cache.errors import EncoderError
from fsnl.cache.schema import EncoderInfo, Preprocessing
from fsnl.pipeline.encoders.base import Encoder
from fsnl.pipeline.encoders.network import choose_device, first_line, network_encoder
from fsnl.pipeline.encoders.state_dict import load_state_dict
from fsnl.pipeline.encoders.weights import Weights

# Networks that are built for one size of image, by the name of that argument.
_SIZE_ARGUMENTS = {"vit": "image_size", "maxvit": "input_size"}

# Classifiers on the side, for training alone: left out, and passed over in a file that has them.
_AUXILIARY = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}

_N_CLASSES = 1000


def torchvision_encoder(
    name: str, *, info: EncoderInfo, preprocessing: Preprocessing, weights: Weights, device: str
) -> Encoder:
    """Build, fill and try one network.

    Args:
        name: of the network, as `torchvision.models.list_models` has it.
        info: what the encoder is called and computes in.
        preprocessing: of its images.
        weights: a random start or a state dict file.
        device: `auto`, `cpu`, `cuda`, `cuda:INDEX` or `mps`.

    Raises:
        EncoderError: no such network, device or precision; weights of another architecture; images of a
            size that the network cannot take.
    """
    chosen = choose_device(device)
    network, head = headless_network(name, image_size=preprocessing.crop, seed=weights.seed or 0)
    if weights.path is not None:
        load_state_dict(
            network,
            weights.path,
            unused=(f"{head}.", *_AUXILIARY.get(name, ())),
            encoder=f"{info.name} at {preprocessing.crop} pixels",
        )
    return network_encoder(network, info=info, preprocessing=preprocessing, device=chosen)


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
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)
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


def recipe_sizes(name: str) -> tuple[int, int]:
    """The sizes that torchvision resizes the shorter side to, and crops, for its own best weights.

    Raises:
        EncoderError: no such network.
    """
    _check_name(name)
    recipe = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    return recipe.resize_size[0], recipe.crop_size[0]


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
