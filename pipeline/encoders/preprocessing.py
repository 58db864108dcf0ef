"""Preparing one decoded image for an encoder: resize the shorter side, cut out the centre."""

import numpy as np
from PIL import Image

from fsnl.cache.arrays import U8
from fsnl.cache.schema import Interpolation, Preprocessing

_FILTERS: dict[Interpolation, Image.Resampling] = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}

# From this ratio of long to short side on, only the centre is resampled: resized whole, a 1 x 65535 image
# would take gigabytes on its way to a small crop.
_STRIP = 16


def prepare(image: U8, *, preprocessing: Preprocessing) -> U8:
    """Resize and crop one image: pixel for pixel torchvision's `Resize(int)` and `CenterCrop` on a PIL image.

    Images more than 16 times as long as wide are the exception: of them only what the crop needs is
    resampled, which may move it by a small part of a pixel.

    Args:
        image: (H, W, 3) uint8 RGB.
        preprocessing: `resize`, `crop`, `interpolation`, `antialias` are used; `resize` >= `crop`.

    Returns:
        (crop, crop, 3) uint8; `image` itself where it already is that.

    Raises:
        ValueError: `crop` is more than `resize`, or smoothing is off for a filter that always smooths.
    """
    check_preprocessing(preprocessing)
    height, width = image.shape[:2]
    if height == width == preprocessing.resize == preprocessing.crop:
        return image
    short, long = min(height, width), max(height, width)
    if long > _STRIP * short:
        return _prepare_strip(image, preprocessing=preprocessing)
    if short != preprocessing.resize:
        new_height, new_width = _resized_shape(height, width, resize=preprocessing.resize)
        resampling = _FILTERS[preprocessing.interpolation]
        image = np.asarray(Image.fromarray(image).resize((new_width, new_height), resampling))
    top, left = (_crop_start(side, crop=preprocessing.crop) for side in image.shape[:2])
    return image[top : top + preprocessing.crop, left : left + preprocessing.crop]


def check_preprocessing(preprocessing: Preprocessing) -> None:
    """Refuse what `prepare` cannot do.

    Raises:
        ValueError: `crop` is not in 1..`resize`, or smoothing is off for a filter that always smooths.
    """
    if not 1 <= preprocessing.crop <= preprocessing.resize:
        message = f"crop {preprocessing.crop} is not in 1..resize = 1..{preprocessing.resize}"
        raise ValueError(message)
    # Pillow's filters always widen with the reduction; only `nearest` has nothing to smooth.
    if not preprocessing.antialias and preprocessing.interpolation != "nearest":
        message = f"{preprocessing.interpolation} without antialias is not available; use antialias=True"
        raise ValueError(message)


def _prepare_strip(image: U8, *, preprocessing: Preprocessing) -> U8:
    """The same crop from a very long image, resampling its centre only."""
    height, width = image.shape[:2]
    new_height, new_width = _resized_shape(height, width, resize=preprocessing.resize)
    crop = preprocessing.crop
    top, left = _crop_start(new_height, crop=crop), _crop_start(new_width, crop=crop)
    down, across = height / new_height, width / new_width  # source pixels per pixel of the resized image
    box = (left * across, top * down, (left + crop) * across, (top + crop) * down)
    resized = Image.fromarray(image).resize((crop, crop), _FILTERS[preprocessing.interpolation], box=box)
    return np.asarray(resized)


def _resized_shape(height: int, width: int, *, resize: int) -> tuple[int, int]:
    """Height and width once the shorter side is `resize`, rounded as torchvision does."""
    new_long = int(resize * max(height, width) / min(height, width))
    return (new_long, resize) if width <= height else (resize, new_long)


def _crop_start(side: int, *, crop: int) -> int:
    """Where the centre crop begins along one side, rounded as torchvision does."""
    return round((side - crop) / 2.0)
