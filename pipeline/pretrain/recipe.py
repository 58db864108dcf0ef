"""How a network is trained: every number that decides its weights, and the learning rate over the steps."""

import math
from dataclasses import dataclass

import numpy as np

from fsnl.cache.errors import EncoderError

# Learning rate per image of a batch, as it was tuned for 512.
_RATE_PER_IMAGE = 0.5 / 512

# The learning rate rises over the first twentieth of the steps.
_WARM_UP = 0.05

# What is drawn at random: the order of an epoch, the two views of a step, what layers draw in it.
_ORDER, _VIEWS, _LAYERS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """What decides the weights, beside the images.

    Attributes:
        encoder: `resnet10`, `conv4` (either with `:WIDTH`) or `torchvision:NAME`.
        views: one of `fsnl.pipeline.pretrain.request.VIEWS`.
        epochs: passes over the images; the learning rate reaches 0 at their end.
        batch_size: images per step, each in two views, over all processes.
        image_size: side in pixels of what the network sees.
        temperature: of the loss.
        learning_rate: the highest one.
        momentum: of SGD.
        weight_decay: of weights of convolutions and linear layers.
        seed: of first weights, order and views.
        precision: `fp32`, `bf16` or `fp16` arithmetic of the network.
    """

    encoder: str
    views: str
    epochs: int
    batch_size: int
    image_size: int
    temperature: float
    learning_rate: float
    momentum: float
    weight_decay: float
    seed: int
    precision: str

    def n_steps(self, *, n_images: int, world_size: int = 1) -> int:
        """Steps of the whole training; images that fill no batch are left out of an epoch, others each time.

        Raises:
            EncoderError: there is not one batch of images, or it cannot be shared among the processes.
        """
        if self.batch_size % world_size:
            message = f"--batch-size {self.batch_size} is not a multiple of the {world_size} processes"
            raise EncoderError(message)
        if n_images < self.batch_size:
            message = f"{n_images} images fill no batch of {self.batch_size}; use a smaller --batch-size"
            raise EncoderError(message)
        return self.epochs * (n_images // self.batch_size)

    def rate(self, step: int, *, n_steps: int) -> float:
        """Learning rate of a step: a linear rise, then a cosine down to 0 (Loshchilov and Hutter 2016)."""
        n_rising = math.ceil(_WARM_UP * n_steps)
        if step < n_rising:
            return self.learning_rate * (step + 1) / (n_rising + 1)
        done = (step - n_rising) / max(1, n_steps - n_rising)
        return self.learning_rate * (1 + math.cos(math.pi * done)) / 2

    def order(self, epoch: int, *, n_images: int) -> list[int]:
        """The images of an epoch, as they are seen."""
        order: list[int] = self._randomness(_ORDER, epoch).permutation(n_images).tolist()
        return order

    def view_randomness(self, step: int) -> np.random.Generator:
        """What the views of a step are drawn from."""
        return self._randomness(_VIEWS, step)

    def layer_seed(self, step: int, *, rank: int) -> int:
        """Of what layers such as dropout draw in a step, in each process something else."""
        return int(self._randomness(_LAYERS, step, rank).integers(2**63))

    def _randomness(self, purpose: int, *numbers: int) -> np.random.Generator:
        """Any step can be drawn without those before it: a resumed training goes on as if never stopped."""
        return np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, purpose, *numbers))))


def default_rate(batch_size: int) -> float:
    """The learning rate grows with the batch (Goyal et al. 2017).

    >>> default_rate(512)
    0.5
    """
    return _RATE_PER_IMAGE * batch_size
