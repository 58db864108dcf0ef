"""One step of training: two views of every image, the loss, and the weights moved against its gradient."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from fsnl.cache.arrays import U8
from fsnl.cache.schema import Preprocessing
from fsnl.pipeline.encoders.network import arithmetic
from fsnl.pipeline.pretrain.gathering import averaged, gathered, share_statistics
from fsnl.pipeline.pretrain.model import Model, build_model
from fsnl.pipeline.pretrain.ntxent import nt_xent_of
from fsnl.pipeline.pretrain.recipe import TrainingRecipe
from fsnl.pipeline.pretrain.views import draw_views, make_views
from fsnl.pipeline.sharding.ranks import Rank


@dataclass(frozen=True, slots=True)
class Trainer:
    """A model in training on one device, maybe one of several processes.

    Attributes:
        recipe: how.
        preprocessing: how images are prepared for it.
        n_steps: of the whole training.
        model: encoder and head.
        optimizer: over the model's weights.
        rank: this process.
        device: where it computes.
        mean, std: (1, 3, 1, 1), which normalise pixels.
        arithmetic: a maker of contexts in which networks compute in the recipe's precision.
        memory_format: how images and weights lie in memory.
    """

    recipe: TrainingRecipe
    preprocessing: Preprocessing
    n_steps: int
    model: Model
    optimizer: torch.optim.SGD
    rank: Rank
    device: torch.device
    mean: torch.Tensor
    std: torch.Tensor
    arithmetic: Callable[[], AbstractContextManager[object]]
    memory_format: torch.memory_format

    def pixels(self, images: U8) -> torch.Tensor:
        """(B, S, S, 3) uint8 -> (B, 3, S, S) float32 in [0, 1] on the device."""
        batch = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        if self.device.type == "cuda":
            batch = batch.pin_memory()
        return batch.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)

    def part(self, n_images: int) -> slice:
        """The images of a batch that this process takes."""
        n_own = n_images // self.rank.world_size
        return slice(self.rank.rank * n_own, (self.rank.rank + 1) * n_own)


def new_trainer(
    recipe: TrainingRecipe, preprocessing: Preprocessing, *, n_steps: int, rank: Rank, device: torch.device
) -> Trainer:
    """A model with its first weights, ready for the first step.

    Raises:
        EncoderError: no such network, or no such arithmetic on this device.
    """
    model = build_model(recipe.encoder, image_size=recipe.image_size, seed=recipe.seed)
    memory_format = _memory_format(model)
    model = model.to(device).to(memory_format=memory_format)
    share_statistics(model, device=device, world_size=rank.world_size)
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim <= 1]
    optimizer = torch.optim.SGD(
        [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        momentum=recipe.momentum,
    )
    mean, std = (
        torch.tensor(values, device=device).reshape(1, 3, 1, 1)
        for values in (preprocessing.mean, preprocessing.std)
    )
    context = arithmetic(recipe.precision, device=device)
    return Trainer(
        recipe, preprocessing, n_steps, model, optimizer, rank, device, mean, std, context, memory_format
    )


def _memory_format(model: Model) -> torch.memory_format:
    """Channels last, which is faster, where the gradients of all layers are safe in it.

    On CPUs torch 2.14 (oneDNN 3.12) writes past the end of the gradient of a strided 1 x 1 convolution of
    fewer than 8 channels that lie last, and the process dies.
    """
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d) and layer.kernel_size == (1, 1) and layer.in_channels < 8:
            if layer.stride != (1, 1):
                return torch.contiguous_format
    return torch.channels_last


def train_step(trainer: Trainer, images: U8, *, step: int) -> torch.Tensor:
    """Learn from one batch.

    Chen et al. 2020, algorithm 1. Draws are made for the images of all processes, of which each uses its own.

    Args:
        trainer: its weights are changed.
        images: (B, S, S, 3) uint8, this process's part of the batch, prepared.
        step: its number.

    Returns:
        The loss over the images of all processes, a float32 scalar on the device.
    """
    recipe, world_size = trainer.recipe, trainer.rank.world_size
    for group in trainer.optimizer.param_groups:
        group["lr"] = recipe.rate(step, n_steps=trainer.n_steps)
    views = _two_views(trainer, images, step=step)
    with _layers_seeded(trainer, step=step), trainer.arithmetic():
        projections = trainer.model(views).float()  # (2B, P)
    first, second = projections.chunk(2)
    every = torch.cat((gathered(first, world_size=world_size), gathered(second, world_size=world_size)))
    n_before = trainer.rank.rank * len(images)
    loss = nt_xent_of(projections, every, n_before=n_before, temperature=recipe.temperature)
    trainer.optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    # every process's loss has moved every process's gradient: their mean is that of the whole batch's loss
    gradients = [weight.grad for weight in trainer.model.parameters() if weight.grad is not None]
    mean_loss = loss.detach()
    averaged([mean_loss, *gradients], world_size=world_size)
    trainer.optimizer.step()
    return mean_loss


@contextmanager
def _layers_seeded(trainer: Trainer, *, step: int) -> Iterator[None]:
    """Dropout and the like, which some networks of torchvision have, draw from torch's own random state.

    It is set by seed, step and process while the block runs, and put back.
    """
    on_gpu = trainer.device.type == "cuda"
    with torch.random.fork_rng(devices=[trainer.device] if on_gpu else []):
        seed = trainer.recipe.layer_seed(step, rank=trainer.rank.rank)
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.default_generators[trainer.device.index].manual_seed(seed)
        yield


def _two_views(trainer: Trainer, images: U8, *, step: int) -> torch.Tensor:
    """(2B, 3, S, S): one view of each image, then another of each, normalised."""
    pixels = trainer.pixels(images)
    randomness = trainer.recipe.view_randomness(step)
    own = trainer.part(trainer.recipe.batch_size)
    with torch.no_grad():
        both = [
            make_views(
                pixels,
                draw_views(randomness, n_images=trainer.recipe.batch_size).of(own),
                views=trainer.recipe.views,
            )
            for _ in range(2)
        ]
        views = torch.cat(both).sub_(trainer.mean).div_(trainer.std)
    return views.contiguous(memory_format=trainer.memory_format)
