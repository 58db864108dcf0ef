"""Resize and crop of one image, against torchvision on PIL images."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

from fsnl.cache.arrays import U8
from fsnl.cache.schema import Interpolation, Preprocessing
from fsnl.pipeline.encoders.preprocessing import prepare

MODES: dict[Interpolation, InterpolationMode] = {
    "nearest": InterpolationMode.NEAREST,
    "bilinear": InterpolationMode.BILINEAR,
    "bicubic": InterpolationMode.BICUBIC,
    "lanczos": InterpolationMode.LANCZOS,
}


def preprocessing(
    resize: int, crop: int, *, interpolation: Interpolation = "bilinear", antialias: bool = True
) -> Preprocessing:
    return Preprocessing(resize, crop, interpolation, antialias, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def noise(height: int, width: int) -> U8:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), np.uint8)


def torchvision_prepare(image: U8, wanted: Preprocessing) -> U8:
    transform = Compose([Resize(wanted.resize, MODES[wanted.interpolation]), CenterCrop(wanted.crop)])
    return np.asarray(transform(Image.fromarray(image)))


@pytest.mark.parametrize("interpolation", MODES)
@pytest.mark.parametrize(
    ("height", "width", "resize", "crop"),
    [(84, 84, 32, 32), (60, 91, 40, 33), (91, 60, 40, 32), (7, 9, 64, 56), (1, 1, 8, 8), (5, 80, 6, 5)],
)
def test_every_pixel_is_torchvisions(
    interpolation: Interpolation, height: int, width: int, resize: int, crop: int
) -> None:
    image, wanted = noise(height, width), preprocessing(resize, crop, interpolation=interpolation)
    np.testing.assert_array_equal(prepare(image, preprocessing=wanted), torchvision_prepare(image, wanted))


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 20), st.integers(0, 10))
def test_any_size_is_torchvisions(height: int, width: int, crop: int, margin: int) -> None:
    image, wanted = noise(height, width), preprocessing(crop + margin, crop)
    made, theirs = prepare(image, preprocessing=wanted), torchvision_prepare(image, wanted)
    if max(height, width) <= 16 * min(height, width):
        np.testing.assert_array_equal(made, theirs)
    else:
        np.testing.assert_allclose(made.astype(int), theirs.astype(int), atol=1)


def test_an_image_of_the_right_size_is_returned_as_it_is() -> None:
    image = noise(32, 32)
    assert np.shares_memory(prepare(image, preprocessing=preprocessing(32, 32)), image)


def test_an_image_whose_shorter_side_fits_is_only_cropped() -> None:
    image = noise(8, 13)
    # (13 - 6) / 2 = 3.5, which rounds to the even 4, as torchvision's own round does
    np.testing.assert_array_equal(prepare(image, preprocessing=preprocessing(8, 6)), image[1:7, 4:10])


@pytest.mark.parametrize("shape", [(1, 65535), (65535, 1)])
def test_a_very_long_image_is_resampled_without_a_giant_on_the_way(shape: tuple[int, int]) -> None:
    # resized whole it would take 224 * 14,679,840 * 3 bytes = 9.9 GB
    image = np.broadcast_to(np.array([10, 20, 30], np.uint8), (*shape, 3))
    made = prepare(np.ascontiguousarray(image), preprocessing=preprocessing(224, 224))
    assert made.shape == (224, 224, 3)
    assert (made == [10, 20, 30]).all()


@pytest.mark.parametrize("shape", [(3, 200), (200, 3)])
def test_a_very_long_image_gives_its_centre(shape: tuple[int, int]) -> None:
    image, wanted = noise(*shape), preprocessing(12, 8)
    made = prepare(image, preprocessing=wanted)
    np.testing.assert_allclose(made.astype(int), torchvision_prepare(image, wanted).astype(int), atol=1)


def test_a_crop_beyond_the_resized_image_is_refused() -> None:
    with pytest.raises(ValueError, match=r"crop 9 is not in 1\.\.resize = 1\.\.8"):
        prepare(noise(9, 9), preprocessing=preprocessing(8, 9))


def test_filters_that_always_smooth_refuse_not_to() -> None:
    with pytest.raises(ValueError, match="bilinear without antialias"):
        prepare(noise(9, 9), preprocessing=preprocessing(8, 8, antialias=False))
    wanted = preprocessing(8, 8, interpolation="nearest", antialias=False)
    assert prepare(noise(9, 9), preprocessing=wanted).shape == (8, 8, 3)
