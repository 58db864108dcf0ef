"""Training by several processes as if by one: the same loss, the same statistics, the same gradients."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from fsnl.cache.errors import FsnlError
from fsnl.pipeline.encoders.network import first_line
from fsnl.pipeline.sharding.ranks import Rank

T = TypeVar("T")


@contextmanager
def process_group(rank: Rank, device: torch.device) -> Iterator[None]:
    """The processes that `torchrun` started, connected while the block runs; nothing for a process alone.

    Raises:
        FsnlError: they cannot be connected.
    """
    if rank.world_size == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    except (RuntimeError, ValueError) as error:
        reason = f"the {rank.world_size} processes are not connected: {first_line(error)}"
        msg = f"{reason}; start them with torchrun"
        raise FsnlError(msg) from error
    try:
        yield
    finally:
        dist.destroy_process_group()


def gathered(local: torch.Tensor, *, world_size: int) -> torch.Tensor:
    """(A, ...) of each process -> (A * world_size, ...) of all, by rank; gradients flow back to each."""
    if world_size == 1:
        return local
    everybody: torch.Tensor = _Gathered.apply(local)
    return everybody


def averaged(values: Iterable[torch.Tensor], *, world_size: int) -> None:
    """Replace tensors of one dtype and device by their means over the processes, in one exchange."""
    if world_size == 1:
        return
    tensors = list(values)
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= world_size
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].reshape(tensor.shape))
        start += tensor.numel()


def from_leader(value: T, *, rank: Rank) -> T:
    """What rank 0 has, on every process."""
    if rank.world_size == 1:
        return value
    carried = [value]
    dist.broadcast_object_list(carried, src=0)
    return carried[0]


def share_statistics(model: nn.Module, *, device: torch.device, world_size: int) -> None:
    """Let the batch normalisations inside a model take the batch of all processes."""
    if world_size == 1:
        return
    if device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return
    for name, module in model.named_children():  # torch's own is for GPUs only
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            model.add_module(name, SharedBatchNorm(module, world_size=world_size))
        else:
            share_statistics(module, device=device, world_size=world_size)


class SharedBatchNorm(nn.Module):
    """A batch normalisation over the batches of all processes, with the tensors of an ordinary one.

    Ioffe and Szegedy 2015, algorithm 1, where mean and variance are exchanged and gradients flow through
    both exchanges.
    """

    def __init__(self, ordinary: nn.BatchNorm1d | nn.BatchNorm2d, *, world_size: int) -> None:
        super().__init__()
        self.world_size = world_size
        self.eps, self.momentum = ordinary.eps, ordinary.momentum or 0.0
        self.weight, self.bias = ordinary.weight, ordinary.bias
        for name, buffer in ordinary.named_buffers():
            self.register_buffer(name, buffer)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, C) or (B, C, H, W) -> the same."""
        shape = [1, -1] + [1] * (inputs.ndim - 2)
        running_mean, running_variance = self.get_buffer("running_mean"), self.get_buffer("running_var")
        if self.training:
            axes = [axis for axis in range(inputs.ndim) if axis != 1]
            mean = self._mean_of_all(inputs.float().mean(axes))
            centred = inputs.float() - mean.reshape(shape)
            variance = self._mean_of_all(centred.square().mean(axes))
            n_values = inputs.numel() // inputs.shape[1] * self.world_size
            with torch.no_grad():
                running_mean.lerp_(mean, self.momentum)
                running_variance.lerp_(variance * n_values / max(1, n_values - 1), self.momentum)
                self.get_buffer("num_batches_tracked").add_(1)
        else:
            centred, variance = inputs.float() - running_mean.reshape(shape), running_variance
        scale = torch.rsqrt(variance + self.eps) * self.weight
        normalised = centred * scale.reshape(shape) + self.bias.reshape(shape)
        return normalised.to(inputs.dtype)

    def _mean_of_all(self, local: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = _Summed.apply(local)
        return total / self.world_size


# torch has the same as torch.distributed.nn.functional.all_gather and all_reduce, which are on their way out.


class _Gathered(torch.autograd.Function):
    """(A, ...) of each process -> those of all, in turn; the gradients that all have of them are summed."""

    @staticmethod
    def forward(ctx: Any, local: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size())[dist.get_rank()]


class _Summed(torch.autograd.Function):
    """The sum over all processes; so is its gradient."""

    @staticmethod
    def forward(ctx: Any, local: torch.Tensor) -> torch.Tensor:
        total = local.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total
