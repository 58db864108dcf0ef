"""Images and data sets that several tests of encoders use."""

import numpy as np
import torch

from fsnl.cache.arrays import U8
from fsnl.cache.schema import DatasetInfo, Listing
from fsnl.pipeline.datasets.base import ImageSet

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)

# Networks as small as those of the tests gain nothing from threads, and lose much beside other programs.
torch.set_num_threads(1)


def image_set(*sizes: tuple[int, int], native_size: int | None = None) -> ImageSet:
    """Black images of these heights and widths."""
    listing = Listing(
        split="test",
        class_names=("a",),
        labels=np.zeros(len(sizes), np.int64),
        image_ids=tuple(str(row) for row in range(len(sizes))),
        source_sizes=np.zeros(len(sizes), np.int64),
    )
    return ImageSet(
        info=DatasetInfo("folder", native_size),
        listing=listing,
        image=lambda row: np.zeros((*sizes[row], 3), np.uint8),
        size=lambda row: sizes[row],
        mean=MEAN,
        std=STD,
        found="",
    )


def noise(n_images: int, side: int) -> U8:
    """(n_images, side, side, 3) random pixels, the same for the same side."""
    return np.random.default_rng(side).integers(0, 256, (n_images, side, side, 3), np.uint8)


def library_input(images: U8) -> torch.Tensor:
    """What torchvision's ToTensor and Normalize make of the images."""
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous().float() / 255
    return (inputs - torch.tensor(MEAN).reshape(3, 1, 1)) / torch.tensor(STD).reshape(3, 1, 1)
