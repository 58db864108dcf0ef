"""What extraction says of odd images: counts against the published ones, duplicates, images of one colour."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import MINI, cache_pickle, noise, read

from fsnl.cache.fingerprint import equal_digests
from fsnl.cache.schema import Listing
from fsnl.pipeline.datasets.hygiene import NEARLY, hygiene_notes, is_near_constant, watch
from fsnl.pipeline.extract import ExtractRequest, extract


def listing(labels: list[int], ids: tuple[str, ...] | None = None) -> Listing:
    names = tuple(f"class{label}" for label in range(max(labels) + 1))
    places = tuple(f"{row:05d}" for row in range(len(labels)))
    sizes = np.ones(len(labels), dtype=np.int64)
    return Listing("test", names, np.array(labels, dtype=np.int64), ids or places, sizes)


@given(st.lists(st.integers(0, 5), max_size=30))
def test_duplicates_are_the_groups_of_equal_digests(values: list[int]) -> None:
    groups = [group.tolist() for group in equal_digests(np.array(values, dtype=np.uint64))]
    expected = {value: [row for row, other in enumerate(values) if other == value] for value in values}
    assert groups == sorted(rows for rows in expected.values() if len(rows) > 1)


@pytest.mark.parametrize("shape", [(84, 84), (32, 32), (1, 1), (5, 300)])
def test_one_colour_is_near_constant_and_noise_is_not(shape: tuple[int, int]) -> None:
    plain = np.full((*shape, 3), (255, 0, 128), dtype=np.uint8)
    assert is_near_constant(plain)
    nearly = plain.copy()
    nearly[-1, -1, 1] = NEARLY
    assert is_near_constant(nearly)
    if shape != (1, 1):
        nearly[-1, -1, 1] = NEARLY + 1
        assert not is_near_constant(nearly)


def test_notes_name_the_images_and_their_classes() -> None:
    digests = np.array([7, 1, 7, 2, 2, 3, 7], dtype=np.uint64)
    notes = hygiene_notes(listing([0, 0, 0, 1, 1, 1, 2]), digests=digests, constant=[5, 1])
    assert notes == [
        "note: 5 images in 2 groups of pixel-identical ones, 1 of them across classes: "
        "00000 (class0) = 00002 (class0) = 00006 (class2); 00003 (class1) = 00004 (class1)",
        "note: 2 images of about one colour: 00001 (class0), 00005 (class1)",
    ]


def test_an_id_that_begins_with_its_class_is_enough() -> None:
    ids = ("class0/a.png", "class0/b.png", "class1/a.png")
    notes = hygiene_notes(listing([0, 0, 1], ids), digests=np.array([1, 1, 2], dtype=np.uint64), constant=[2])
    assert notes[0].endswith(": class0/a.png = class0/b.png")
    assert notes[1].endswith(": class1/a.png")


def test_nothing_odd_gives_no_note() -> None:
    assert hygiene_notes(listing([0, 1]), digests=np.array([1, 2], dtype=np.uint64), constant=[]) == []


def test_watching_changes_no_image(tmp_path: Path) -> None:
    pixels = noise(60, 8)
    pixels[17] = 200
    images = read("miniimagenet", cache_pickle(tmp_path / "a.pkl", MINI["test"], image_data=pixels))
    watched, constant = watch(images)
    assert all((watched.image(row) == images.image(row)).all() for row in range(60))
    assert constant == [17]
    assert watched.listing is images.listing


def test_extraction_tells_what_is_odd_and_goes_on(tmp_path: Path) -> None:
    pixels = noise(60, 8)
    pixels[4] = pixels[50]
    pixels[17] = 200
    path = cache_pickle(tmp_path / "a.pkl", MINI["test"], image_data=pixels)
    said: list[str] = []
    request = ExtractRequest(dataset="miniimagenet", root=path, encoder="pixels", image_size=4)
    extract(request, out=tmp_path / "out.h5", note=said.append)
    text = "\n".join(said)
    assert "3 images a class, published are 600" in text
    names = f"00004 ({MINI['test'][1]}) = 00050 ({MINI['test'][16]})"
    assert f"note: 2 images in 1 group of pixel-identical ones, 1 of them across classes: {names}" in text
    assert f"note: 1 image of about one colour: 00017 ({MINI['test'][5]})" in text


def test_uneven_counts_are_told_class_by_class(tmp_path: Path) -> None:
    names = MINI["test"]
    members = {name: list(range(3 * i, 3 * i + 3)) for i, name in enumerate(names)}
    members[names[0]], members[names[1]] = [0, 1], [2, 3, 4, 5]
    images = read("miniimagenet", cache_pickle(tmp_path / "a.pkl", names, side=4, class_dict=members))
    counts = f"'{names[0]}' has 2, '{names[1]}' has 4, '{names[2]}' has 3, ..."
    told = f"600 images a class were published, but {counts}"
    assert told in images.found


def test_full_counts_are_not_remarked_on(tmp_path: Path) -> None:
    names = MINI["test"]
    members = {name: list(range(600 * i, 600 * i + 600)) for i, name in enumerate(names)}
    pixels = np.zeros((12000, 1, 1, 3), dtype=np.uint8)
    images = read(
        "miniimagenet", cache_pickle(tmp_path / "a.pkl", names, image_data=pixels, class_dict=members)
    )
    assert "published are 600" not in images.found
