"""Random views of images, a batch at once, each image by draws of its own.

The transforms of SimCLR (Chen et al. 2020, appendix A) with the strengths for images of about 32 pixels:
crops of a fifth of the area and more (as MoCo v2 has it), colour distortion of strength 0.5, Gaussian blur.
torchvision's transforms draw once for a whole batch, so that all its images would be seen alike; applied
image by image they take longer than the training step. Here every transform is one operation on the batch,
with draws that the caller makes: what is drawn is on the CPU and the same for every device and any number
of processes.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch.nn import functional as F

from fsnl.cache.arrays import F32
from fsnl.pipeline.pretrain.request import VIEWS

# Share of the image's area, and width over height, of a crop.
_AREA = (0.2, 1.0)
_ASPECT = (3 / 4, 4 / 3)

# Colour distortion of strength 0.5: the most that factors leave 1, and that the hue turns, in full turns.
_FACTOR = 0.4
_HUE = 0.1

# Shares of the images.
_DISTORTED, _GREY, _FLIPPED, _BLURRED = 0.8, 0.2, 0.5, 0.5

# Standard deviation of the blur in pixels.
_SIGMA = (0.1, 2.0)

# ITU-R BT.601 luma, and the axes of the colour plane (YIQ).
_LUMA = (0.299, 0.587, 0.114)
_RGB_TO_YIQ = (_LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


@dataclass(frozen=True, slots=True)
class Draws:
    """Numbers in [0, 1) that decide the views of B images.

    Attributes:
        crop: (B, 5): area, aspect ratio, row, column, flip.
        color: (B, 6): distorted or not, brightness, contrast, saturation, hue, grey or not.
        blur: (B, 2): blurred or not, standard deviation.
    """

    crop: F32
    color: F32
    blur: F32

    def of(self, images: slice) -> "Draws":
        """Those of some of the images."""
        return Draws(*(getattr(self, field.name)[images] for field in fields(self)))


def draw_views(randomness: np.random.Generator, *, n_images: int) -> Draws:
    """Draws for one view of each of B images; whatever the views are made of, the same numbers are drawn."""
    return Draws(*(randomness.random((n_images, n), dtype=np.float32) for n in (5, 6, 2)))


def make_views(images: torch.Tensor, draws: Draws, *, views: str) -> torch.Tensor:
    """One view of every image.

    Args:
        images: (B, 3, S, S) float32 in [0, 1].
        draws: for these images.
        views: one of `VIEWS`.

    Returns:
        (B, 3, S, S) float32 in [0, 1].

    Raises:
        ValueError: other `views`.
    """
    if views not in VIEWS:
        message = f"views {views!r} are not one of {', '.join(VIEWS)}"
        raise ValueError(message)
    parts = views.split("+")
    if "crop" in parts:
        images = cropped(images, _on(images, draws.crop))
    if "color" in parts:
        images = distorted(images, _on(images, draws.color))
    if "blur" in parts:
        images = blurred(images, _on(images, draws.blur))
    return images


def cropped(images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """A random part of each image, resized to the whole and maybe mirrored.

    Args:
        images: (B, 3, S, S).
        draws: (B, 5) in [0, 1).
    """
    area = _between(draws[:, 0], *_AREA)
    aspect = torch.exp(_between(draws[:, 1], *(math.log(bound) for bound in _ASPECT)))
    # in units of half the image; a crop that is too long for it is as long as it
    height = (area / aspect).sqrt().clamp(max=1.0)
    width = (area * aspect).sqrt().clamp(max=1.0)
    top = (1 - height) * (2 * draws[:, 2] - 1)
    left = (1 - width) * (2 * draws[:, 3] - 1)
    mirror = torch.where(draws[:, 4] < _FLIPPED, -1.0, 1.0)
    zero = torch.zeros_like(area)
    affine = torch.stack((width * mirror, zero, left, zero, height, top), dim=1).reshape(-1, 2, 3)
    grid = F.affine_grid(affine, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def distorted(images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Brightness, contrast, saturation and hue of most images, and some without colour.

    The four are linear in the three channels, so together they are one affine map per image; values are cut
    to [0, 1] after all of them. The hue turns the colour plane of YIQ.

    Args:
        images: (B, 3, S, S).
        draws: (B, 6) in [0, 1).
    """
    identity = torch.eye(3, device=images.device).expand(len(images), 3, 3)
    luma = torch.tensor(_LUMA, device=images.device)
    to_luma = luma.expand(3, 3)  # every channel becomes the luma
    brightness, contrast, saturation = (
        _between(draws[:, column], 1 - _FACTOR, 1 + _FACTOR).reshape(-1, 1, 1) for column in (1, 2, 3)
    )
    color = saturation * identity + (1 - saturation) * to_luma
    color = _hue(_between(draws[:, 4], -_HUE, _HUE)) @ color
    matrix = brightness * contrast * color
    # contrast moves values from the image's mean luma, which saturation and hue leave as it is
    mean_luma = images.mean(dim=(2, 3)) @ luma
    shift = ((1 - contrast) * brightness).reshape(-1, 1) * mean_luma.reshape(-1, 1)
    is_distorted = (draws[:, 0] < _DISTORTED).reshape(-1, 1, 1)
    matrix = torch.where(is_distorted, matrix, identity)
    shift = torch.where(is_distorted[:, 0], shift, 0.0).expand(-1, 3)
    is_grey = (draws[:, 5] < _GREY).reshape(-1, 1, 1)
    matrix = torch.where(is_grey, to_luma @ matrix, matrix)
    changed = torch.baddbmm(shift.unsqueeze(2), matrix, images.flatten(2))
    return changed.clamp_(0, 1).reshape(images.shape)


def blurred(images: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Gaussian blur of half of the images; the kernel is a tenth of the side, and odd.

    Args:
        images: (B, 3, S, S).
        draws: (B, 2) in [0, 1).
    """
    n_images, n_channels, side, _ = images.shape
    radius = max(1, side // 20)
    distance = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    sigma = _between(draws[:, 1], *_SIGMA).reshape(-1, 1)
    weights = torch.exp(-0.5 * (distance / sigma) ** 2)
    sharp = (distance == 0).to(images.dtype)
    is_blurred = (draws[:, 0] < _BLURRED).reshape(-1, 1)
    weights = torch.where(is_blurred, weights / weights.sum(1, keepdim=True), sharp)
    kernels = weights.repeat_interleave(n_channels, dim=0)
    # each channel of each image is a group with a kernel of its own, across and then down
    maps = images.reshape(1, n_images * n_channels, side, side)
    maps = F.pad(maps, (radius, radius, radius, radius), mode="reflect" if side > radius else "replicate")
    maps = F.conv2d(maps, kernels[:, None, None, :], groups=len(kernels))
    maps = F.conv2d(maps, kernels[:, None, :, None], groups=len(kernels))
    return maps.reshape(images.shape)


def _hue(turns: torch.Tensor) -> torch.Tensor:
    """(B,) turns -> (B, 3, 3) maps of RGB that turn the colour plane and keep the luma."""
    angle = 2 * math.pi * turns
    cosine, sine = angle.cos(), angle.sin()
    zero, one = torch.zeros_like(angle), torch.ones_like(angle)
    rows = (one, zero, zero, zero, cosine, -sine, zero, sine, cosine)
    to_yiq = torch.tensor(_RGB_TO_YIQ, device=turns.device)
    turn = torch.stack(rows, dim=1).reshape(-1, 3, 3)
    maps: torch.Tensor = torch.linalg.inv(to_yiq) @ turn @ to_yiq
    return maps


def _between(draws: torch.Tensor, low: float, high: float) -> torch.Tensor:
    return low + (high - low) * draws


def _on(images: torch.Tensor, draws: F32) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(draws)).to(images.device)
