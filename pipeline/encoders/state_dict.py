"""Filling a network from a checkpoint: all of its tensors are there and fit, or the first misfit is named."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import torch

from fsnl.cache.errors import EncoderError
from fsnl.pipeline.encoders.checkpoint_file import CheckpointFile
from fsnl.pipeline.encoders.heads import find_head
from fsnl.pipeline.encoders.key_layout import View, find_view, left_over

# Names of a network that are looked for to find it in a checkpoint.
_ANCHORS = 24

# (name, tensor of the checkpoint, shape that the network has) -> the tensor resized, or None where it cannot.
Resize = Callable[[str, torch.Tensor, torch.Size], torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class Filled:
    """What came of filling a network.

    Attributes:
        head: the projection head that the checkpoint also holds, None where there is none.
        note: a line for the user: how many tensors matched, and what was left over.
    """

    head: torch.nn.Module | None
    note: str


def fill_network(
    network: torch.nn.Module,
    checkpoint: CheckpointFile,
    *,
    encoder: str,
    view: View | None = None,
    unused: Iterable[str] = (),
    resize: Resize = lambda name, tensor, shape: None,
) -> Filled:
    """Fill a network without its classifier from a checkpoint.

    Args:
        network: what to fill.
        checkpoint: the tensors.
        encoder: the network's name, for errors.
        view: where it lies among them, None to look for it.
        unused: prefixes of names, as the network would have them, that it does without.
        resize: adapts tensors whose shape follows the image size.

    Raises:
        EncoderError: a tensor of the network is missing, has another shape or another kind of numbers, or the
            checkpoint holds tensors inside the network that the network does not have.
    """
    wanted = network.state_dict()
    if view is None:
        anchors = islice((name for name in wanted if not name.endswith("num_batches_tracked")), _ANCHORS)
        view = find_view(checkpoint.tensors, anchors=anchors, wanted=wanted) or View("")
    state = OrderedDict((name, checkpoint.tensors[view.names[name]]) for name in wanted if name in view.names)
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            resized = resize(name, tensor, wanted[name].shape)
            state[name] = tensor if resized is None else resized
    _check_names(network, wanted, checkpoint, view=view, encoder=encoder, unused=tuple(unused))
    _check_tensors(state, wanted, checkpoint, view=view, encoder=encoder)
    _load(network, state, checkpoint, view=view, encoder=encoder)
    head, in_head = find_head(checkpoint.tensors, view=view)
    used = [view.names[name] for name in state]
    rest = left_over(checkpoint.tensors, used=[*used, *in_head])
    return Filled(
        head, _described(checkpoint, view=view, n_used=len(used), rest=rest, n_in_head=len(in_head))
    )


def _check_tensors(
    state: "OrderedDict[str, torch.Tensor]",
    wanted: dict[str, torch.Tensor],
    checkpoint: CheckpointFile,
    *,
    view: View,
    encoder: str,
) -> None:
    """Of the shapes that are needed, and of floating-point numbers: others would be cast without a word."""
    differing = [name for name in state if state[name].shape != wanted[name].shape]
    if differing:
        name = differing[0]
        message = (
            f"{checkpoint.path}: tensor {view.in_file(name)!r} is {tuple(state[name].shape)}, "
            f"{encoder} needs {tuple(wanted[name].shape)}; "
            f"{len(differing)} of its {len(wanted)} tensors differ in shape"
        )
        raise EncoderError(message)
    for name, tensor in state.items():
        if wanted[name].is_floating_point() and not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            message = (
                f"{checkpoint.path}: tensor {view.in_file(name)!r} is of {kind}, "
                f"{encoder} needs floating-point numbers"
            )
            raise EncoderError(message)


def _check_names(
    network: torch.nn.Module,
    wanted: dict[str, torch.Tensor],
    checkpoint: CheckpointFile,
    *,
    view: View,
    encoder: str,
    unused: tuple[str, ...],
) -> None:
    """Nothing is missing, and nothing more lies inside the modules that the network has."""
    missing = [name for name in wanted if name not in view.names and not name.endswith("num_batches_tracked")]
    own = {name.partition(".")[0] for name in wanted}
    surplus = [
        full
        for name, full in view.names.items()
        if name.partition(".")[0] in own and name not in wanted and not name.startswith(unused)
    ]
    beside = f"; it holds {surplus[0]!r} instead" if surplus else ""
    if missing:
        message = (
            f"{checkpoint.path}: lacks {len(missing)} of the tensors that {encoder} needs, "
            f"first {view.in_file(missing[0])!r}{beside}"
        )
        raise EncoderError(message)
    if surplus:
        message = (
            f"{checkpoint.path}: holds {len(surplus)} tensors that {encoder} does not have, "
            f"first {surplus[0]!r}"
        )
        raise EncoderError(message)


def _load(
    network: torch.nn.Module,
    state: "OrderedDict[str, torch.Tensor]",
    checkpoint: CheckpointFile,
    *,
    view: View,
    encoder: str,
) -> None:
    # modules rename what older versions of themselves wrote, by a version that a plain dict lacks
    versions = {
        module.removeprefix(view.prefix).removesuffix("."): {"version": version}
        for module, version in checkpoint.versions.items()
        if module.startswith(view.prefix) and not view.numbers
    }
    versions.setdefault("", {"version": getattr(network, "_version", 1)})
    vars(state)["_metadata"] = versions
    try:
        network.load_state_dict(state, strict=False)
    except (RuntimeError, ValueError) as error:
        message = f"{checkpoint.path}: does not fit {encoder}: {' '.join(str(error).split())}"
        raise EncoderError(message) from error


def _described(checkpoint: CheckpointFile, *, view: View, n_used: int, rest: str, n_in_head: int) -> str:
    where = f" under {view.prefix!r}" if view.prefix else ""
    head = f", {n_in_head} of a head" if n_in_head else ""
    over = f"; left over: {rest}" if rest else ""
    return f"{checkpoint.path.name}: {n_used} tensors{where} matched, none is missing{head}{over}"
