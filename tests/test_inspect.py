"""fsnl-inspect: what it finds in stores whose faults are known."""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from commands import assert_refused, done, fsnl, image_folder
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from stores import clusters, even_labels, header, listing, write_store

from fsnl.cache.arrays import F32
from fsnl.cache.writer import new_store
from fsnl.pipeline.duplicates import near_duplicates
from fsnl.pipeline.embedding_health import embedding_health
from fsnl.pipeline.inspect import inspect_store


def report(*arguments: str | Path) -> dict[str, Any]:
    loaded = json.loads(done("inspect", *arguments, "--format", "json").stdout)
    assert isinstance(loaded, dict)
    return loaded


def test_identity_and_size_are_told(digits_store: Path) -> None:
    text = done("inspect", digits_store).stdout
    assert text.startswith(f"{digits_store}: feature store, format version 1, 1.")
    assert "data set  digits\nencoder   pixels, fp32\nimages    8 px, bilinear\n" in text
    row = next(line for line in text.splitlines() if line.startswith("test "))
    assert row.split()[:9] == ["test", "1,797", "10", "174", "/", "180.5", "/", "183", "192"]
    found = report(digits_store)
    assert (found["format"], found["version"], found["verified"]) == ("fsnl.inspection", 1, False)
    split = found["splits"][0]
    assert split["images_per_class"] == {"min": 174, "median": 180.5, "max": 183}
    assert (split["n_images"], split["n_classes"], split["embedding_dim"]) == (1797, 10, 192)


def test_health_of_a_hand_made_set() -> None:
    # Norms 5, 0, 1, 13; the row with NaN counts nowhere else; the last dimension is constant in the others.
    rows = np.array([[3, 4, 0], [0, 0, 0], [1, 0, 0], [5, 12, 0], [np.nan, 1, 7], [np.inf, 1, 7]], np.float32)
    health = embedding_health(rows)
    assert health.not_finite.tolist() == [4, 5]
    assert health.all_zero.tolist() == [1]
    assert health.norms == (0.0, 3.0, 13.0)
    assert health.constant_dimensions == 1
    assert health.effective_rank_rows == 4


def effective_rank(rows: F32) -> float:
    """By its definition: Roy and Vetterli 2007."""
    singular = np.linalg.svd(rows - rows.mean(axis=0, dtype=np.float64), compute_uv=False)
    shares = singular[singular > singular.max() * 1e-6] / singular.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@pytest.mark.parametrize(("n", "dim"), [(40, 7), (7, 40), (200, 3)])
def test_the_effective_rank_is_that_of_its_definition(
    n: int, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(n).normal(size=(n, dim)).astype(np.float32) * np.arange(
        1, dim + 1, dtype="f4"
    )
    expected = effective_rank(rows)
    monkeypatch.setattr("fsnl.pipeline.embedding_health.BLOCK_VALUES", 16)
    by_dimensions = embedding_health(rows).effective_rank
    monkeypatch.setattr("fsnl.pipeline.embedding_health.SPECTRUM_SIZE", 0)
    monkeypatch.setattr("fsnl.pipeline.embedding_health.SPECTRUM_SIZE", max(dim - 1, 1) if n < dim else dim)
    assert by_dimensions == pytest.approx(expected, rel=1e-4)
    assert embedding_health(rows).effective_rank == pytest.approx(expected, rel=1e-4)


def test_the_effective_rank_tells_a_line_from_a_ball() -> None:
    direction = np.random.default_rng(0).normal(size=(1, 16)).astype(np.float32)
    line = np.linspace(1, 2, 50, dtype=np.float32)[:, None] * direction
    assert embedding_health(line).effective_rank == pytest.approx(1, abs=1e-3)
    assert embedding_health(np.ones((5, 3), np.float32)).effective_rank is None
    ball = np.random.default_rng(1).normal(size=(4000, 16)).astype(np.float32)
    assert embedding_health(ball).effective_rank == pytest.approx(16, abs=0.1)


def test_of_more_dimensions_than_that_some_rows_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsnl.pipeline.embedding_health.SPECTRUM_SIZE", 10)
    rows = np.random.default_rng(0).normal(size=(100, 20)).astype(np.float32)
    health = embedding_health(rows)
    assert health.effective_rank_rows == 10
    assert health.effective_rank is not None
    assert 5 < health.effective_rank <= 9


def test_bad_rows_are_named(tmp_path: Path) -> None:
    embeddings = clusters(n_classes=2, n_per_class=3, dim=4)
    embeddings[1] = 0
    embeddings[4, 2] = np.nan
    path = write_store(tmp_path / "bad.h5", embeddings, even_labels(n_classes=2, n_per_class=3))
    text = done("inspect", path).stdout
    assert "test: 1 embeddings are not finite: 'class-001/00004.png'" in text
    assert "test: 1 embeddings are all zero: 'class-000/00001.png'" in text
    split = report(path)["splits"][0]
    assert split["not_finite"] == {"count": 1, "image_ids": ["class-001/00004.png"]}


@pytest.fixture
def two_splits(tmp_path: Path) -> Path:
    """Train and test; a hen of train is in test, twice, once as an owl; two owls of train are near."""
    root = image_folder(tmp_path / "photos", {"ape": 3, "hen": 3, "owl": 3}, folder="train", side=8)
    image_folder(root, {"hen": 2, "owl": 2}, folder="test", side=8, seed=1)
    shutil.copy(root / "train" / "hen" / "001.png", root / "test" / "hen" / "000.png")
    shutil.copy(root / "train" / "hen" / "001.png", root / "test" / "owl" / "001.png")
    with Image.open(root / "train" / "owl" / "000.png") as image:
        pixels = np.array(image)
    pixels[0, 0] ^= 3
    Image.fromarray(pixels).save(root / "train" / "owl" / "002.png")
    out = tmp_path / "two.h5"
    images = ("--dataset", "folder", "--root", root, "--split", "train", "--split", "test")
    done("extract", *images, "--encoder", "pixels", "--out", out)
    return out


def test_images_that_two_splits_share_are_called_leakage(two_splits: Path) -> None:
    text = done("inspect", two_splits).stdout
    assert "leakage: 1 image is pixel for pixel in both test and train" in text
    assert "3 images in 1 group of pixel-identical ones, 1 of them across classes or splits:" in text
    assert "  test: hen/000.png = test: owl/001.png = train: hen/001.png" in text
    found = report(two_splits)
    assert found["shared_images"] == [{"splits": ["test", "train"], "n_images": 1}]
    group = found["identical_images"][0]
    assert [(place["split"], place["image_id"], place["class"]) for place in group] == [
        ("test", "hen/000.png", "hen"),
        ("test", "owl/001.png", "owl"),
        ("train", "hen/001.png", "hen"),
    ]


def test_near_duplicates_are_found_in_and_across_splits(two_splits: Path) -> None:
    found = report(two_splits, "--duplicates", "0.9999")["near_duplicates"]
    assert (found["n_pairs"], found["n_across_classes"], found["n_across_splits"]) == (4, 1, 2)
    pairs = [({i["image_id"] for i in p["images"]}, p["identical"]) for p in found["pairs"]]
    assert ({"owl/000.png", "owl/002.png"}, False) in pairs
    assert sum(identical for _, identical in pairs) == 3
    text = done("inspect", two_splits, "--duplicates", "0.9999").stdout
    assert "4 pairs of embeddings with a cosine of 0.9999 or more (1 across classes, 2 across splits)" in text
    assert "pixels equal  test: hen/000.png ~ test: owl/001.png" in text
    assert_refused(
        fsnl("inspect", two_splits, "--duplicates", "2"), "Invalid value for '--duplicates'", code=2
    )


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(2, 9), st.just(3)), elements=st.integers(-2, 2)),
    st.sampled_from([-1.0, -0.5, 0.0, 0.6, 0.9]),
)
def test_near_duplicates_equal_a_search_over_all_pairs(rows: F32, threshold: float) -> None:
    from fsnl.cache.schema import Features

    labels = np.arange(len(rows))
    names = tuple(map(str, labels))
    features = Features("test", rows, labels, names, names, np.arange(len(rows), dtype=np.uint64), "")
    found = {(p.one.row, p.other.row): p.cosine for p in near_duplicates([features], threshold=threshold)}
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            if not norms[i] or not norms[j]:
                assert (i, j) not in found
                continue
            cosine = float(rows[i].astype(np.float64) @ rows[j] / (norms[i] * norms[j]))
            if abs(cosine - threshold) > 1e-6:
                assert ((i, j) in found) == (cosine >= threshold)
            if (i, j) in found:
                assert found[i, j] == pytest.approx(cosine, abs=1e-6)


def test_a_healthy_store_has_nothing_odd(tmp_path: Path) -> None:
    path = write_store(
        tmp_path / "s.h5",
        clusters(n_classes=2, n_per_class=3, dim=4),
        even_labels(n_classes=2, n_per_class=3),
    )
    text = done("inspect", path).stdout
    assert text.endswith("\nnothing odd\n")
    assert "3  " in text


def test_verify_tells_that_all_is_well_or_names_what_is_not(tiny_store: Path, tmp_path: Path) -> None:
    assert "checksums: every byte is as it was written" in done("inspect", tiny_store, "--verify").stdout
    spoiled = Path(shutil.copy(tiny_store, tmp_path / "spoiled.h5"))
    with h5py.File(spoiled) as file:
        place = file["splits/test/embeddings"].id.get_offset() + 7
    data = bytearray(spoiled.read_bytes())
    data[place] ^= 4
    spoiled.write_bytes(data)
    assert fsnl("inspect", spoiled).code == 0
    outcome = fsnl("inspect", spoiled, "--verify")
    assert_refused(outcome, r"spoiled.h5: damaged: /splits/test/embeddings not as written; restore a copy")


def test_images_that_are_not_those_that_were_encoded_are_named(two_splits: Path, tmp_path: Path) -> None:
    root = tmp_path / "photos"
    outcome = done("inspect", two_splits, "--images", root)
    assert f"{root}: 13 images are those that were encoded" in outcome.stdout
    Image.new("RGB", (8, 8), "red").save(root / "train" / "ape" / "001.png")
    (root / "test" / "hen" / "001.png").unlink()
    shutil.copy(root / "train" / "owl" / "001.png", root / "train" / "owl" / "009.png")
    outcome = fsnl("inspect", two_splits, "--images", root)
    assert outcome.code == 1
    assert outcome.reason.endswith(
        f"the images below {root} are not those that were encoded: 1 changed, 1 missing, 1 new"
    )
    for line in (
        f"{root}: 1 changed: 'train: ape/001.png'",
        f"{root}: 1 missing: 'test: hen/001.png'",
        f"{root}: 1 not in the store: 'train: owl/009.png'",
    ):
        assert line in outcome.stdout


def test_digests_of_0_are_of_images_that_nobody_knows(tmp_path: Path) -> None:
    path = tmp_path / "imported.h5"
    with new_store(path, header(), overwrite=False) as store:
        rows = listing(even_labels(n_classes=2, n_per_class=2))
        store.add_split(rows, [(np.eye(4, dtype=np.float32), np.zeros(4, np.uint64))], request={})
    assert inspect_store(path).identical == ()
    outcome = fsnl("inspect", path, "--images", tmp_path)
    assert_refused(outcome, "split 'test' was imported, without images to compare with")


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    assert_refused(fsnl("inspect", tmp_path / "none.h5"), "none.h5: no such feature store")
