"""Which numbers of a network become the embedding: a layer by name, and how its output becomes a vector."""

import difflib
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from fsnl.cache.errors import EncoderError
from fsnl.pipeline.encoders.pooling import HEAD, POOLED, Pool


@dataclass(frozen=True, slots=True)
class Backbone:
    """A network, built and filled, that ends before its classifier.

    Attributes:
        network: (B, 3, S, S) -> the features that its classifier or projection head takes.
        head: the projection head of its training, from those features on; None where there is none.
        no_head: why there is none, for an error.
        removed: name of the layer that was taken off, which is the way to ask for `head` by its name.
        n_prefix_tokens: tokens before those of the image in a sequence (class token, registers).
        notes: lines for the user: what was found in a file.
    """

    network: torch.nn.Module
    head: torch.nn.Module | None = None
    no_head: str = "it has none"
    removed: str | None = None
    n_prefix_tokens: int = 0
    notes: tuple[str, ...] = ()


class _Reached(Exception):
    """No error: it ends a forward pass at the layer asked for."""

    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output


class Readout(torch.nn.Module):
    """A network up to one of its layers, whose output is made one vector per image.

    Args:
        backbone: the network.
        layer: `pooled`, `head`, or the name of a module, whose first output is taken.
        pool: see `Pool`.
        name: the encoder's name, for errors.

    Raises:
        EncoderError: the network has no such layer or no projection head.
    """

    def __init__(self, backbone: Backbone, *, layer: str, pool: Pool, name: str) -> None:
        super().__init__()
        self.network = backbone.network
        self.head: torch.nn.Module | None = None
        self.pool = pool
        self.n_prefix_tokens = backbone.n_prefix_tokens
        self.described = f"layer {layer!r} of {name}"
        self.stops = False
        if layer == HEAD or layer == backbone.removed:
            if backbone.head is None:
                message = f"{name} has no projection head to take as layer {layer!r}: {backbone.no_head}"
                raise EncoderError(message)
            self.head = backbone.head
        elif layer != POOLED:
            self.stops = True
            _module(backbone.network, layer, name=name).register_forward_hook(_stop)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, 3, S, S) -> (B, D)."""
        if self.stops:
            return self._vectors(self._output_of_the_layer(inputs), self.pool)
        features = self.network(inputs)
        if self.head is None:
            return self._vectors(features, self.pool)
        return self._vectors(self.head(self._vectors(features, "auto")), self.pool)

    def _output_of_the_layer(self, inputs: torch.Tensor) -> object:
        try:
            self.network(inputs)
        except _Reached as reached:
            return reached.output
        message = f"{self.described} takes no part in the forward pass"
        raise EncoderError(message)

    def _vectors(self, output: object, pool: Pool) -> torch.Tensor:
        if not isinstance(output, torch.Tensor):
            message = f"{self.described} gives a {type(output).__name__}, not a tensor; name another --layer"
            raise EncoderError(message)
        try:
            return pooled(output, pool=pool, n_prefix_tokens=self.n_prefix_tokens)
        except ValueError as error:
            message = f"{self.described}: {error}"
            raise EncoderError(message) from error


def pooled(output: torch.Tensor, *, pool: Pool, n_prefix_tokens: int) -> torch.Tensor:
    """One vector per image from what a layer gives.

    Args:
        output: (B, D); (B, C, H, W) or (B, H, W, C), told apart by the equal sides of a square image's
            maps; or (B, T, D) tokens.
        pool: `auto` keeps vectors, averages maps, and takes the class token of a sequence where there is
            one, else its mean. `mean` and `max` run over positions, `mean` and `max` of a sequence over its
            image tokens. `token` is the first token. `flatten` keeps every number.
        n_prefix_tokens: tokens before those of the image.

    Returns:
        (B, D').

    Raises:
        ValueError: this output cannot be pooled so.
    """
    if pool == "flatten" and output.ndim > 1:
        return output.flatten(1)
    if output.ndim == 2:
        if pool == "auto":
            return output
        message = f"its output is one vector per image already; leave out --pool {pool}"
        raise ValueError(message)
    if output.ndim == 4 and pool != "token":
        channels_last = output.shape[1] == output.shape[2] != output.shape[3]
        return _reduced(output, pool=pool, axes=(1, 2) if channels_last else (2, 3))
    if output.ndim == 3:
        if pool == "token" or (pool == "auto" and n_prefix_tokens):
            if n_prefix_tokens:
                return output[:, 0]
            message = "its sequence has no class token; use --pool mean"
            raise ValueError(message)
        return _reduced(output[:, n_prefix_tokens:], pool=pool, axes=(1,))
    message = f"its output of shape {tuple(output.shape[1:])} per image cannot be pooled by {pool!r}"
    raise ValueError(message)


def _reduced(output: torch.Tensor, *, pool: Pool, axes: tuple[int, ...]) -> torch.Tensor:
    return output.amax(axes) if pool == "max" else output.mean(axes)


def _stop(_module: torch.nn.Module, _inputs: Any, output: object) -> NoReturn:
    raise _Reached(output)


def _module(network: torch.nn.Module, layer: str, *, name: str) -> torch.nn.Module:
    modules: dict[str, torch.nn.Module] = dict(network.named_modules())
    if layer in modules and layer:
        return modules[layer]
    near = difflib.get_close_matches(layer, modules, n=4)
    top = [child for child, _ in network.named_children()]
    choices = f"near it: {', '.join(near)}" if near else f"at the top there are {', '.join(top)}"
    message = f"{name} has no layer {layer!r}; {choices}; or give {POOLED} or {HEAD}"
    raise EncoderError(message)
