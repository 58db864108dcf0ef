"""How images are prepared for a network: one precedence for the size, one for mean and deviation."""

from dataclasses import dataclass

from fsnl.cache.schema import Interpolation, Preprocessing
from fsnl.pipeline.datasets.base import ImageSet

# Networks halve their input up to five times: images of a smaller benchmark (digits: 8) are enlarged to this.
SMALLEST_NETWORK_SIZE = 32


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the makers of a network, or of its weights, did to their images.

    Attributes:
        resize: the shorter side is resized to this.
        crop: side of the centre square that the network sees.
        interpolation: of the resize.
        mean: per channel, None where the weights bring none of their own.
        std: likewise.
    """

    resize: int
    crop: int
    interpolation: Interpolation = "bilinear"
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None


# As most networks for ImageNet, and those of self-supervised training with them, are evaluated.
IMAGENET_RECIPE = Recipe(256, 224)


def settled_size(image_set: ImageSet, *, image_size: int | None) -> int | None:
    """The side that the user asks for, else the benchmark's own; None leaves it to the recipe."""
    if image_size is not None:
        return image_size
    native_size = image_set.info.native_size
    return None if native_size is None else max(native_size, SMALLEST_NETWORK_SIZE)


def network_preprocessing(
    image_set: ImageSet, *, image_size: int | None, recipe: Recipe = IMAGENET_RECIPE
) -> Preprocessing:
    """Size by the user, else the benchmark, else the recipe; mean and deviation by the recipe, else the data.

    Args:
        image_set: its native size, mean and standard deviation are used.
        image_size: what the user asks for, None for nothing.
        recipe: of the network or its weights.
    """
    size = settled_size(image_set, image_size=image_size)
    return Preprocessing(
        resize=recipe.resize if size is None else size,
        crop=recipe.crop if size is None else size,
        interpolation=recipe.interpolation,
        antialias=True,
        mean=recipe.mean or image_set.mean,
        std=recipe.std or image_set.std,
    )
