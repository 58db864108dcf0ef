"""What a recipe says of every step: the learning rate, the order of the images, the draws of the views."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsnl.cache.errors import EncoderError
from fsnl.pipeline.pretrain.recipe import TrainingRecipe, default_rate

RECIPE = TrainingRecipe(
    encoder="resnet10:16",
    views="crop+color",
    epochs=10,
    batch_size=32,
    image_size=32,
    temperature=0.2,
    learning_rate=0.5,
    momentum=0.9,
    weight_decay=1e-4,
    seed=7,
    precision="fp32",
)


def rates(n_steps: int) -> list[float]:
    return [RECIPE.rate(step, n_steps=n_steps) for step in range(n_steps)]


def test_the_rate_of_a_short_training_by_hand() -> None:
    # 8 steps: ceil(0.4) = 1 step of rise, at 0.5 * 1/2, then 7 of half a cosine that ends at step 8.
    expected = [0.25, *(0.25 * (1 + math.cos(math.pi * i / 7)) for i in range(7))]
    assert rates(8) == pytest.approx(expected)
    # 60 steps: 3 of rise, at 1/4, 2/4 and 3/4 of the highest rate, which the fourth has.
    assert rates(60)[:4] == pytest.approx([0.125, 0.25, 0.375, 0.5])


@given(n_steps=st.integers(1, 3000))
def test_the_rate_rises_once_then_falls_to_nothing_and_is_always_positive(n_steps: int) -> None:
    found = rates(n_steps)
    highest = int(np.argmax(found))
    assert highest <= math.ceil(n_steps / 20)
    assert all(a < b for a, b in pairwise(found[: highest + 1]))
    assert all(a > b for a, b in pairwise(found[highest:]))
    assert min(found) > 0
    assert max(found) <= 0.5
    if n_steps > 1:
        assert max(found) == 0.5
        assert RECIPE.rate(n_steps, n_steps=n_steps) == pytest.approx(0, abs=1e-12)


@given(n_images=st.integers(1, 300), epoch=st.integers(0, 500))
def test_an_epoch_sees_every_image_once(n_images: int, epoch: int) -> None:
    order = RECIPE.order(epoch, n_images=n_images)
    assert sorted(order) == list(range(n_images))
    assert all(type(position) is int for position in order)


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    order = RECIPE.order(3, n_images=100)
    other = replace(RECIPE, encoder="conv4:8", views="crop+blur", epochs=5, batch_size=8, learning_rate=0.1)
    RECIPE.order(2, n_images=100)
    RECIPE.view_randomness(3).random(5)
    np.random.default_rng(0).random()
    assert other.order(3, n_images=100) == order
    assert RECIPE.order(4, n_images=100) != order
    assert replace(RECIPE, seed=8).order(3, n_images=100) != order


def test_the_draws_of_a_step_need_none_of_those_before_it() -> None:
    in_turn = [RECIPE.view_randomness(step).random(4).tolist() for step in range(6)]
    backwards = [RECIPE.view_randomness(step).random(4).tolist() for step in reversed(range(6))]
    assert in_turn == backwards[::-1]
    assert len({tuple(numbers) for numbers in in_turn}) == 6
    assert replace(RECIPE, seed=8).view_randomness(0).random(4).tolist() not in in_turn


def test_what_layers_draw_follows_from_seed_step_and_process() -> None:
    seeds = [RECIPE.layer_seed(step, rank=rank) for step in range(4) for rank in range(3)]
    assert seeds == [RECIPE.layer_seed(step, rank=rank) for step in range(4) for rank in range(3)]
    assert len({*seeds, replace(RECIPE, seed=8).layer_seed(0, rank=0)}) == 13
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_order_and_views_of_one_number_are_drawn_apart() -> None:
    order = RECIPE.view_randomness(3).permutation(100).tolist()
    assert order != RECIPE.order(3, n_images=100)


def test_the_draws_of_a_seed_are_these() -> None:
    # Weights are published with their seed: NumPy keeps the streams of SeedSequence and Philox.
    assert RECIPE.view_randomness(5).bit_generator.random_raw(2).tolist() == [
        568681474523626035,
        9359186307344789531,
    ]
    assert RECIPE.order(3, n_images=12) == [8, 10, 4, 3, 7, 5, 9, 2, 6, 1, 11, 0]


@pytest.mark.parametrize(
    ("n_images", "world_size", "expected"), [(32, 1, 10), (63, 1, 10), (64, 4, 20), (100, 2, 30)]
)
def test_images_that_fill_no_batch_are_left_out_of_an_epoch(
    n_images: int, world_size: int, expected: int
) -> None:
    assert RECIPE.n_steps(n_images=n_images, world_size=world_size) == expected


def test_fewer_images_than_a_batch_are_refused() -> None:
    with pytest.raises(EncoderError, match="31 images fill no batch of 32; use a smaller --batch-size"):
        RECIPE.n_steps(n_images=31)


def test_a_batch_that_the_processes_cannot_share_evenly_is_refused() -> None:
    with pytest.raises(EncoderError, match="--batch-size 32 is not a multiple of the 3 processes"):
        RECIPE.n_steps(n_images=100, world_size=3)


def test_the_rate_grows_with_the_batch() -> None:
    assert [default_rate(n) for n in (64, 512, 1024)] == [0.0625, 0.5, 1.0]
