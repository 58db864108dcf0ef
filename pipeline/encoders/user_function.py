"""Encoders of the user's own code: a function in a file that returns a network."""

from pathlib import Path

import torch

from fsnl.cache.errors import EncoderError
from fsnl.pipeline.encoders.checkpoint_file import read_checkpoint
from fsnl.pipeline.encoders.readout import Backbone
from fsnl.pipeline.encoders.seeds import seeded
from fsnl.pipeline.encoders.state_dict import fill_network
from fsnl.pipeline.encoders.weights import Weights
from fsnl.pipeline.user_code import FAILURES, run_file, told


def function_backbone(path: Path, function: str, *, weights: Weights, encoder: str) -> Backbone:
    """Run the user's file, call the function, and fill the network that it returns where a file is named.

    The file is run as an import would, with its folder on the module path. The function is called without
    arguments; what it draws at random follows the seed of the weights, 0 where none is named.

    Args:
        path: the Python file.
        function: its name in there.
        weights: a seed or a file; neither where the function sees to them.
        encoder: the encoder's name, for errors.

    Raises:
        EncoderError: no such file or function, an exception in the user's code, no network returned, or
            weights of another architecture.
    """
    try:
        module = run_file(path, keep_on_path=True)
    except FAILURES as error:
        raise _failed(path, encoder=encoder, error=error) from error
    if module is None:
        message = f"{path}: not a Python file (.py)"
        raise EncoderError(message)
    make = getattr(module, function, None)
    if not callable(make):
        there = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        message = f"{path} has no function {function!r}; there are {', '.join(there) or 'none'}"
        raise EncoderError(message)
    try:
        with seeded(weights.seed or 0):
            network = make()
    except FAILURES as error:
        raise _failed(path, encoder=encoder, error=error) from error
    if not isinstance(network, torch.nn.Module):
        message = f"{encoder}: the function returned a {type(network).__name__}, not a torch.nn.Module"
        raise EncoderError(message)
    n_prefix_tokens = int(hasattr(network, "cls_token") or hasattr(network, "class_token"))
    if weights.path is None:
        return Backbone(network, n_prefix_tokens=n_prefix_tokens)
    filled = fill_network(network, read_checkpoint(weights.path), encoder=encoder)
    return Backbone(
        network,
        head=filled.head,
        no_head=f"{weights.path.name} holds none",
        n_prefix_tokens=n_prefix_tokens,
        notes=(filled.note,),
    )


def _failed(path: Path, *, encoder: str, error: BaseException) -> EncoderError:
    return EncoderError(f"{encoder}: the user's code raised {told(error, path=path)}")
