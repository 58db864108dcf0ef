"""The loss of SimCLR against hand-worked values, a slow reference, and what must not change it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import nt_xent as slow_nt_xent

from fsnl.pipeline.pretrain.ntxent import nt_xent, nt_xent_of

TEMPERATURE = 0.5

# Beside other programs threads cost so small a product more than they gain.
torch.set_num_threads(1)


def projections(n_images: int, *, dim: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    randomness = np.random.default_rng(seed)
    first, second = randomness.standard_normal((2, n_images, dim)).astype(np.float32)
    return torch.from_numpy(first), torch.from_numpy(second)


def test_two_images_whose_views_are_alike_and_orthogonal_to_each_other_s() -> None:
    # Views a, b and again a, b with a.b = 0. Each view has one partner of cosine 1 and two others of
    # cosine 0: -log(e^(1/t) / (e^(1/t) + e^0 + e^0)), which is log(1 + 2 e^-2) = 0.2395 for t = 1/2.
    views = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    loss = nt_xent(views, 2 * views, temperature=TEMPERATURE)
    assert loss.item() == pytest.approx(math.log(1 + 2 * math.exp(-2)), rel=1e-6)
    assert loss.item() == pytest.approx(0.239544, abs=1e-6)


def test_two_images_whose_views_are_orthogonal_and_alike_to_each_other_s() -> None:
    # First views a, b, second views b, a. For each view the partner has cosine 0, one other view 1 and
    # the third 0: -log(1 / (1 + e^2 + 1)) = log(2 + e^2) = 2.2395.
    views = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    loss = nt_xent(views, views.flip(0), temperature=TEMPERATURE)
    assert loss.item() == pytest.approx(math.log(2 + math.exp(2)), rel=1e-6)


def test_views_that_are_not_alike_in_both_directions_are_averaged_over_all_2b() -> None:
    # First views a, b, second views a, a with a.b = 0, temperature 1. Cosine of the partner; of the others:
    # first a 1; 0, 1. First b 0; 0, 0. Second a of image 1 1; 0, 1. Second a of image 2 0; 1, 1.
    # Twice log(2e + 1) - 1, then log 3 and log(2e + 1).
    first = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    second = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    expected = (2 * (math.log(2 * math.e + 1) - 1) + math.log(3) + math.log(2 * math.e + 1)) / 4
    assert nt_xent(first, second, temperature=1.0).item() == pytest.approx(expected, rel=1e-6)


def test_a_single_image_has_nothing_to_be_told_from() -> None:
    first, second = projections(1)
    assert nt_xent(first, second, temperature=0.1).item() == 0


@pytest.mark.parametrize("temperature", [0.05, 0.2, 1.0, 7.0])
@pytest.mark.parametrize("n_images", [2, 3, 17])
def test_it_equals_a_loop_over_all_pairs(n_images: int, temperature: float) -> None:
    first, second = projections(n_images, seed=n_images)
    expected = slow_nt_xent(first.tolist(), second.tolist(), temperature=temperature)
    assert nt_xent(first, second, temperature=temperature).item() == pytest.approx(expected, rel=2e-6)


def test_its_gradient_is_that_of_finite_differences() -> None:
    first, second = projections(3, dim=4)
    first.requires_grad_()
    nt_xent(first, second, temperature=TEMPERATURE).backward()  # type: ignore[no-untyped-call]
    assert first.grad is not None
    step = 1e-5
    for row, column in np.ndindex(3, 4):
        losses = []
        for sign in (1, -1):
            moved = first.detach().double().clone()
            moved[row, column] += sign * step
            losses.append(slow_nt_xent(moved.tolist(), second.tolist(), temperature=TEMPERATURE))
        slope = (losses[0] - losses[1]) / (2 * step)
        assert first.grad[row, column].item() == pytest.approx(slope, abs=1e-6)


@given(n_images=st.integers(2, 8), seed=st.integers(0, 2**32 - 1), swap=st.booleans())
def test_lengths_the_order_of_images_and_which_view_is_first_change_nothing(
    n_images: int, seed: int, swap: bool
) -> None:
    first, second = projections(n_images, seed=seed)
    randomness = np.random.default_rng(seed)
    order = torch.from_numpy(randomness.permutation(n_images))
    lengths = torch.from_numpy(randomness.uniform(1e-3, 1e3, (2, n_images, 1)).astype(np.float32))
    others = (first * lengths[0])[order], (second * lengths[1])[order]
    changed = nt_xent(*(others[::-1] if swap else others), temperature=0.2)
    torch.testing.assert_close(changed, nt_xent(first, second, temperature=0.2), rtol=1e-5, atol=1e-6)


def test_partners_that_come_closer_lower_it() -> None:
    first, second = projections(8)
    losses = [
        nt_xent(first, torch.lerp(second, first, share), temperature=0.2).item()
        for share in (0.0, 0.3, 0.6, 1.0)
    ]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("n_parts", [2, 3, 6])
def test_the_parts_of_several_processes_average_to_the_whole(n_parts: int) -> None:
    first, second = projections(6)
    every, n_own = torch.cat((first, second)), 6 // n_parts
    losses = [
        nt_xent_of(
            torch.cat((first[before : before + n_own], second[before : before + n_own])),
            every,
            n_before=before,
            temperature=TEMPERATURE,
        )
        for before in range(0, 6, n_own)
    ]
    whole = nt_xent(first, second, temperature=TEMPERATURE)
    torch.testing.assert_close(torch.stack(losses).mean(), whole, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["random", "large", "all equal", "all opposite", "some zero"])
def test_gradients_are_finite_at_a_low_temperature_in_bf16(kind: str) -> None:
    first, second = projections(16, dim=128)
    if kind == "large":
        first, second = 1e4 * first, 1e4 * second
    elif kind == "all equal":
        first = second = torch.ones_like(first)
    elif kind == "all opposite":
        first, second = torch.ones_like(first), -torch.ones_like(first)
    elif kind == "some zero":
        first[3] = second[5] = 0
    first, second = (views.bfloat16().requires_grad_() for views in (first, second))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nt_xent(first, second, temperature=0.05)
    assert loss.dtype == torch.float32, "whatever the projections are"
    loss.backward()  # type: ignore[no-untyped-call]
    assert math.isfinite(loss.item())
    for views in (first, second):
        assert views.grad is not None
        assert torch.isfinite(views.grad).all()


def test_autocast_does_not_reach_into_it() -> None:
    first, second = projections(16, dim=64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = nt_xent(first, second, temperature=0.05)
    assert torch.equal(inside, nt_xent(first, second, temperature=0.05))


def test_all_views_alike_are_guessed_among() -> None:
    # Every cosine is 1: a view's partner is one of 2B - 1 = 31 alike.
    views = torch.ones(16, 128)
    assert nt_xent(views, views, temperature=0.05).item() == pytest.approx(math.log(31), rel=1e-5)


@pytest.mark.parametrize(
    ("first", "second"), [((4, 3), (5, 3)), ((4, 3), (4, 2)), ((4,), (4,)), ((2, 4, 3), (2, 4, 3))]
)
def test_projections_that_are_no_pair_are_refused(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"projections of shapes \(.*\) and \(.*\), needed \(B, P\) twice"):
        nt_xent(torch.zeros(first), torch.zeros(second), temperature=0.5)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match=rf"temperature {temperature} is not positive"):
        nt_xent(*projections(2), temperature=temperature)
