"""Random views: every image by its own draws, equal to slow plain loops, and within what pixels may be."""

import math
import re

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from torchvision.transforms.v2 import functional as library

from fsnl.cache.arrays import F32
from fsnl.pipeline.pretrain.request import VIEWS
from fsnl.pipeline.pretrain.views import Draws, blurred, cropped, distorted, draw_views, make_views

F64 = npt.NDArray[np.float64]

LUMA = np.array([0.299, 0.587, 0.114])
TO_YIQ = np.array([LUMA, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])

# Draws that leave an image as it is: the whole of it, not mirrored; nothing distorted; nothing blurred.
WHOLE = (1.0, 0.5, 0.5, 0.5, 0.9)
PLAIN = (0.9, 0.5, 0.5, 0.5, 0.5, 0.9)
SHARP = (0.9, 0.5)

# As much as float32 may round, over a few operations.
ROUNDING = 2e-6

# Beside other programs threads cost so small a batch more than they gain.
torch.set_num_threads(1)


def noise(n_images: int = 6, side: int = 32, *, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    pixels = np.random.default_rng(side).uniform(low, high, (n_images, 3, side, side))
    return torch.from_numpy(pixels.astype(np.float32))


def some_draws(n_images: int = 6, *, seed: int = 0) -> Draws:
    return draw_views(np.random.default_rng(seed), n_images=n_images)


def tensor(*rows: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def changed(row: tuple[float, ...], **columns: float) -> tuple[float, ...]:
    """A row of draws with some of them set, as `_0=0.5`."""
    return tuple(columns.get(f"_{i}", value) for i, value in enumerate(row))


def luma(images: torch.Tensor) -> F64:
    """(B, 3, S, S) -> (B, S, S)."""
    found: F64 = np.einsum("c,bcij->bij", LUMA, images.numpy().astype(np.float64))
    return found


# The same in plain loops, one image and one step after another, in float64.


def slow_crop(image: F64, draws: F32) -> F64:
    """Box of a share of the area and a ratio of width to height, its pixels between four neighbours."""
    side = image.shape[-1]
    area, ratio = 0.2 + 0.8 * float(draws[0]), (4 / 3) ** (2 * float(draws[1]) - 1)
    width, height = (min(side, side * math.sqrt(value)) for value in (area * ratio, area / ratio))
    top, left = float(draws[2]) * (side - height), float(draws[3]) * (side - width)
    result = np.empty_like(image)
    for i in range(side):
        for j in range(side):
            column = side - 1 - j if draws[4] < 0.5 else j
            y = min(max(top + (i + 0.5) * height / side - 0.5, 0), side - 1)
            x = min(max(left + (column + 0.5) * width / side - 0.5, 0), side - 1)
            above, before = int(y), int(x)
            below, after = min(above + 1, side - 1), min(before + 1, side - 1)
            upper = image[:, above, before] * (1 - x + before) + image[:, above, after] * (x - before)
            lower = image[:, below, before] * (1 - x + before) + image[:, below, after] * (x - before)
            result[:, i, j] = upper * (1 - y + above) + lower * (y - above)
    return result


def slow_distortion(image: F64, draws: F32) -> F64:
    """Brightness, contrast, saturation, hue one after another, then grey, then cut to [0, 1]."""
    brightness, contrast, saturation = (0.6 + 0.8 * float(draw) for draw in draws[1:4])
    if draws[0] < 0.8:
        image = brightness * image
        image = contrast * image + (1 - contrast) * np.tensordot(LUMA, image, axes=1).mean()
        image = saturation * image + (1 - saturation) * np.tensordot(LUMA, image, axes=1)
        y, i, q = np.tensordot(TO_YIQ, image, axes=1)
        plane = (i + 1j * q) * np.exp(2j * math.pi * (0.2 * float(draws[4]) - 0.1))
        image = np.tensordot(np.linalg.inv(TO_YIQ), np.stack((y, plane.real, plane.imag)), axes=1)
    if draws[5] < 0.2:
        image = np.broadcast_to(np.tensordot(LUMA, image, axes=1), image.shape)
    return image.clip(0, 1)


def slow_blur(image: F64, draws: F32) -> F64:
    """scipy's, with a kernel that reaches a twentieth of the side to either direction."""
    radius = max(1, image.shape[-1] // 20)
    sigma = 0.1 + 1.9 * float(draws[1])
    if draws[0] >= 0.5:
        return image
    result: F64 = gaussian_filter(image, (0, sigma, sigma), mode="mirror", truncate=radius / sigma)
    return result


@pytest.mark.parametrize("side", [7, 32])
def test_a_crop_equals_a_loop_over_its_pixels(side: int) -> None:
    images, draws = noise(side=side), some_draws().crop
    found = cropped(images, torch.from_numpy(draws)).numpy()
    for image, of_image, view in zip(images.double().numpy(), draws, found, strict=True):
        np.testing.assert_allclose(view, slow_crop(image, of_image), atol=1e-4)


def test_a_crop_along_pixel_borders_is_torchvision_s_resized_crop() -> None:
    # A quarter of the area, square (0.5 is the middle of the ratios): 16 x 16 pixels from row 4, column 12.
    images = noise(1)
    found = cropped(images, tensor(((0.25 - 0.2) / 0.8, 0.5, 4 / 16, 12 / 16, 0.9)))
    expected = library.resized_crop(images, 4, 12, 16, 16, [32, 32], antialias=False)
    # at its edge ours sees the pixels beside the crop
    torch.testing.assert_close(found[:, :, 1:-1, 1:-1], expected[:, :, 1:-1, 1:-1], rtol=0, atol=1e-5)


def test_the_whole_area_is_the_image_and_its_mirror_image_the_mirror() -> None:
    images = noise(2)
    found = cropped(images, tensor(WHOLE, changed(WHOLE, _4=0.1)))
    torch.testing.assert_close(found[0], images[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[1], images[1].flip(2), rtol=0, atol=1e-5)


def test_the_place_of_a_crop_goes_from_corner_to_corner() -> None:
    # Values are the row and the column: the mean of a crop is its centre. Half of either side.
    row, column = np.mgrid[:32, :32].astype(np.float32)
    image = torch.from_numpy(np.stack((row, column, row)))
    quarter = changed(WHOLE, _0=0.05 / 0.8)
    places = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.5, 0.5)]
    draws = tensor(*(changed(quarter, _2=down, _3=right) for down, right in places))
    centres = cropped(image.expand(4, 3, 32, 32), draws).mean(dim=(2, 3))[:, :2]
    expected = [(7.5 + 16 * down, 7.5 + 16 * right) for down, right in places]
    torch.testing.assert_close(centres, torch.tensor(expected), rtol=0, atol=0.02)


def test_colours_equal_a_loop_over_the_images() -> None:
    images, draws = noise(40, 8), some_draws(40).color
    found = distorted(images, torch.from_numpy(draws)).numpy()
    for image, of_image, view in zip(images.double().numpy(), draws, found, strict=True):
        np.testing.assert_allclose(view, slow_distortion(image, of_image), atol=ROUNDING)


def test_hue_and_saturation_keep_the_luma_of_every_pixel() -> None:
    images = noise(5, 8, low=0.4, high=0.6)  # far from where values are cut
    draws = tensor(*(changed(PLAIN, _0=0.0, _3=a, _4=b) for a, b in np.random.default_rng(1).random((5, 2))))
    found = distorted(images, draws)
    assert (found - images).abs().max() > 0.02
    np.testing.assert_allclose(luma(found), luma(images), atol=ROUNDING)


def test_contrast_keeps_the_mean_luma_and_brightness_multiplies_it() -> None:
    images = noise(4, 8, low=0.4, high=0.6)
    contrast = distorted(images, tensor(*(changed(PLAIN, _0=0.0, _2=draw) for draw in (0.0, 0.3, 0.7, 1.0))))
    np.testing.assert_allclose(luma(contrast).mean((1, 2)), luma(images).mean((1, 2)), atol=ROUNDING)
    # contrast factors are 0.6 + 0.8 draw
    spread = luma(contrast).std((1, 2)) / luma(images).std((1, 2))
    np.testing.assert_allclose(spread, [0.6, 0.84, 1.16, 1.4], rtol=1e-4)
    brightness = distorted(
        images, tensor(*(changed(PLAIN, _0=0.0, _1=draw) for draw in (0.0, 0.5, 0.9, 1.0)))
    )
    np.testing.assert_allclose(
        brightness, images * torch.tensor([0.6, 1, 1.32, 1.4]).reshape(4, 1, 1, 1), atol=ROUNDING
    )


def test_without_saturation_to_lose_grey_images_stay_grey() -> None:
    grey = noise(30, 8)[:, :1].expand(30, 3, 8, 8)
    found = distorted(grey, torch.from_numpy(some_draws(30).color))
    assert (found - found.mean(1, keepdim=True)).abs().max() < ROUNDING


def test_a_grey_view_has_the_luma_of_the_coloured_one() -> None:
    images = noise(3, 8, low=0.4, high=0.6)
    row = (0.0, 0.3, 0.6, 0.8, 0.1)
    coloured = distorted(images, tensor(*[(*row, 0.9)] * 3))
    grey = distorted(images, tensor(*[(*row, 0.1)] * 3))
    np.testing.assert_allclose(luma(grey), luma(coloured), atol=ROUNDING)
    for channel in grey.unbind(1):
        np.testing.assert_allclose(channel, luma(coloured), atol=ROUNDING)


@pytest.mark.parametrize("side", [2, 32, 84])
def test_a_blur_equals_scipy_s(side: int) -> None:
    images, draws = noise(side=side), some_draws().blur
    found = blurred(images, torch.from_numpy(draws)).numpy()
    for image, of_image, view in zip(images.double().numpy(), draws, found, strict=True):
        np.testing.assert_allclose(view, slow_blur(image, of_image), atol=ROUNDING)


def test_one_pixel_is_blurred_into_itself() -> None:
    images = noise(3, 1)
    torch.testing.assert_close(blurred(images, torch.zeros(3, 2)), images)


def test_what_is_not_drawn_leaves_the_image_as_it_is() -> None:
    images = noise(2)
    assert torch.equal(distorted(images, tensor(PLAIN, PLAIN)), images)
    assert torch.equal(blurred(images, tensor(SHARP, SHARP)), images)


def test_as_many_images_are_changed_as_the_recipe_says() -> None:
    # Mirrored and blurred 1/2; left in their colours (1 - 0.8)(1 - 0.2) = 0.16. 4,000 images: 0.03 is
    # about four standard deviations of a share of one half.
    n_images = 4000
    images = torch.linspace(0.2, 0.4, 12).reshape(1, 3, 2, 2).expand(n_images, 3, 2, 2).contiguous()
    draws = some_draws(n_images)
    crops = cropped(images, torch.from_numpy(draws.crop))
    slope = crops[..., 1] - crops[..., 0]
    same_color = (distorted(images, torch.from_numpy(draws.color)) == images).flatten(1).all(1)
    same_blur = (blurred(images, torch.from_numpy(draws.blur)) == images).flatten(1).all(1)
    for share, expected in ((slope.mean((1, 2)) < 0, 0.5), (same_color, 0.16), (same_blur, 0.5)):
        assert share.float().mean().item() == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("views", VIEWS)
def test_views_are_made_of_the_parts_that_they_name_in_this_order(views: str) -> None:
    images, draws = noise(), some_draws()
    expected = images
    for name, change in (("crop", cropped), ("color", distorted), ("blur", blurred)):
        if name in views:
            expected = change(expected, torch.from_numpy(getattr(draws, name)))
    assert torch.equal(make_views(images, draws, views=views), expected)
    assert not torch.equal(expected, images)


@pytest.mark.parametrize("views", VIEWS)
def test_every_image_of_a_batch_is_seen_in_its_own_way(views: str) -> None:
    images = noise(1).expand(16, 3, 32, 32).contiguous()
    found = make_views(images, some_draws(16), views=views).flatten(1)
    n_different = len(torch.unique(found, dim=0))
    # without a crop (1 - 0.8)(1 - 0.2)(1 - 0.5) = 0.08 of them stay as they are
    assert n_different == 16 if "crop" in views else n_different >= 12


@pytest.mark.parametrize("views", VIEWS)
def test_the_images_beside_it_do_not_change_a_view(views: str) -> None:
    images, draws = noise(), some_draws()
    together = make_views(images, draws, views=views)
    for part in (slice(0, 1), slice(1, 4), slice(4, 6)):
        own = make_views(images[part], draws.of(part), views=views)
        torch.testing.assert_close(own, together[part], rtol=0, atol=ROUNDING)


@given(
    seed=st.integers(0, 2**32 - 1),
    side=st.integers(1, 9),
    extreme=st.booleans(),
    views=st.sampled_from(VIEWS),
)
def test_every_value_of_a_view_is_one_that_a_pixel_may_have(
    seed: int, side: int, extreme: bool, views: str
) -> None:
    randomness = np.random.default_rng(seed)
    pixels = randomness.random((4, 3, side, side), dtype=np.float32)
    draws = draw_views(randomness, n_images=4)
    if extreme:  # black, white and pure colours; draws at their ends
        pixels = pixels.round()
        draws = Draws(draws.crop.round(), draws.color.round(), draws.blur.round())
    before = pixels.copy()
    found = make_views(torch.from_numpy(pixels), draws, views=views)
    assert found.shape == pixels.shape
    assert found.dtype == torch.float32
    assert found.min() >= -ROUNDING
    assert found.max() <= 1 + ROUNDING
    np.testing.assert_array_equal(pixels, before, "views are new, images stay as they are")


@pytest.mark.parametrize("views", VIEWS)
def test_how_images_lie_in_memory_changes_no_view(views: str) -> None:
    images, draws = noise(), some_draws()
    other = images.contiguous(memory_format=torch.channels_last)
    found = make_views(other, draws, views=views)
    torch.testing.assert_close(found, make_views(images, draws, views=views), rtol=0, atol=ROUNDING)


def test_draws_are_those_of_their_generator_and_lie_in_the_unit_interval() -> None:
    draws = some_draws(200, seed=3)
    again, other = some_draws(200, seed=3), some_draws(200, seed=4)
    for name, n in (("crop", 5), ("color", 6), ("blur", 2)):
        numbers = getattr(draws, name)
        assert (numbers.shape, numbers.dtype) == ((200, n), np.float32)
        assert (numbers >= 0).all()
        assert (numbers < 1).all()
        np.testing.assert_array_equal(numbers, getattr(again, name))
        assert not (numbers == getattr(other, name)).any(axis=1).all()
        assert len(np.unique(numbers[:, 0])) == 200, "each image has its own"
        np.testing.assert_array_equal(numbers[3:9], getattr(draws.of(slice(3, 9)), name))


@pytest.mark.parametrize("views", ["crop", "blur+crop", "color+crop", "", "crop+colour"])
def test_other_views_are_refused_and_those_that_there_are_named(views: str) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"views {views!r} are not one of crop+color, crop+blur, ")
    ):
        make_views(noise(), some_draws(), views=views)
