"""Transforms against scikit-learn, by hand, and what is said of chains that cannot be."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.preprocessing import Normalizer, StandardScaler
from stores import clusters, even_labels, header, listing, write_store

from fsnl.cache.arrays import F32, I64
from fsnl.cache.errors import MismatchError, ScoringError
from fsnl.cache.reader import FeatureStore, open_store
from fsnl.cache.writer import new_store
from fsnl.pipeline.score import EpisodePlan, score_stores
from fsnl.pipeline.transforms import chain
from fsnl.pipeline.transforms.chain import apply_chain, fit_chain, parse_chain

TRAIN = clusters(n_classes=5, n_per_class=40, dim=12, seed=1) + np.float32(3)
TEST = clusters(n_classes=6, n_per_class=12, dim=12, seed=2) + np.float32(3)
PLAN = EpisodePlan(n_way=3, shots=(1, 2), n_query=4, n_episodes=20)


def transformed(text: str, embeddings: F32 = TEST, *, train: F32 = TRAIN) -> F32:
    return apply_chain(fit_chain(parse_chain(text), {"train": train, "test": embeddings}), embeddings)


def two_splits(path: Path, *, train: F32 = TRAIN, test: F32 = TEST, encoder: str = "tests") -> FeatureStore:
    with new_store(path, header(encoder=encoder), overwrite=True) as store:
        for split, rows, n_classes in (("train", train, 5), ("test", test, 6)):
            labels: I64 = even_labels(n_classes=n_classes, n_per_class=len(rows) // n_classes)
            names = tuple(f"{split}-{c}" for c in range(n_classes))
            batch = [(rows.astype(np.float32), np.arange(len(rows), dtype=np.uint64))]
            store.add_split(listing(labels, split=split, class_names=names), batch, request={})
    return open_store(path)


def test_zscore_is_scikit_learns_standard_scaler() -> None:
    scaler = StandardScaler().fit(TRAIN.astype(np.float64))
    wanted = scaler.transform(TEST.astype(np.float64))
    np.testing.assert_allclose(transformed("zscore:train"), wanted, rtol=1e-6, atol=1e-7)


def test_constant_dimensions_are_centred_and_not_divided_as_in_scikit_learn() -> None:
    train, test = TRAIN.copy(), TEST.copy()
    train[:, 0], train[:, 1] = 0.1, 1e9
    wanted = StandardScaler().fit(train.astype(np.float64)).transform(test.astype(np.float64))
    got = transformed("zscore:train", test, train=train)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got[:, 0], test[:, 0] - np.float32(0.1), rtol=1e-6, atol=1e-7)


def test_l2_is_scikit_learns_normalizer_and_leaves_zero_rows() -> None:
    test = TEST.copy()
    test[3] = 0
    wanted = Normalizer().transform(test.astype(np.float64))
    np.testing.assert_allclose(transformed("l2", test), wanted, rtol=1e-6)
    assert not transformed("l2", test)[3].any()


@pytest.mark.parametrize("factor", [1e-42, 1e-30, 1e30, 1e37])
def test_l2_of_extreme_rows_has_length_one(factor: float) -> None:
    extreme = (np.sign(TEST) * np.float32(factor)).astype(np.float32)
    np.testing.assert_allclose(np.linalg.norm(transformed("l2", extreme), axis=1), 1, rtol=1e-6)


def test_center_takes_off_the_mean_of_the_split() -> None:
    wanted = TEST - TRAIN.astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(transformed("center:train"), wanted, rtol=1e-5, atol=1e-6)


def test_power_keeps_the_sign() -> None:
    rows = np.array([[4.0, -9.0, 0.0, -0.25]], dtype=np.float32)
    np.testing.assert_allclose(transformed("power", rows), [[2, -3, 0, -0.5]])
    np.testing.assert_allclose(transformed("power:2", rows), [[16, -81, 0, -0.0625]])


@pytest.mark.parametrize("n_train", [200, 9])
@pytest.mark.parametrize("whitened", [False, True])
def test_principal_components_are_scikit_learns_but_for_the_sign(n_train: int, whitened: bool) -> None:
    train = TRAIN[:: len(TRAIN) // n_train][:n_train]
    text = "whiten:train:4" if whitened else "pca:train:4"
    model = PCA(4, whiten=whitened, svd_solver="full").fit(train.astype(np.float64))
    wanted = model.transform(TEST.astype(np.float64))
    got = transformed(text, train=train)
    np.testing.assert_allclose(np.abs(got), np.abs(wanted), rtol=1e-4, atol=1e-5)


def test_whitening_without_a_number_keeps_all_that_varies() -> None:
    train = TRAIN.copy()
    train[:, 4] = train[:, 5]
    white = transformed("whiten:train", train, train=train).astype(np.float64)
    assert white.shape[1] == 11
    np.testing.assert_allclose(np.cov(white.T), np.eye(11), atol=1e-4)


def test_later_steps_are_fitted_on_what_earlier_steps_made() -> None:
    unit = Normalizer().transform(TRAIN.astype(np.float64))
    wanted = Normalizer().transform(TEST.astype(np.float64)) - unit.mean(axis=0)
    np.testing.assert_allclose(transformed("l2,center:train"), wanted, rtol=1e-4, atol=1e-6)


@given(chunk=st.integers(1, 500))
def test_how_rows_are_streamed_changes_nothing(chunk: int) -> None:
    before = transformed("zscore:train,power,pca:train:5")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "CHUNK_VALUES", chunk)
        after = transformed("zscore:train,power,pca:train:5")
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_fitting_loses_no_digits_far_from_the_origin() -> None:
    far = (TRAIN.astype(np.float64) + 1e5).astype(np.float32)
    got = transformed("zscore:train", far, train=far)
    np.testing.assert_allclose(got.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(got.std(axis=0), 1, atol=1e-4)


def test_none_hands_the_embeddings_through() -> None:
    assert transformed("none") is TEST


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no transform '', there are none, l2, "),
        ("zcore:train", "no transform 'zcore:train'.*did you mean zscore"),
        ("l2,", "no transform ''"),
        ("l2:train", "no transform 'l2:train'; needed l2"),
        ("center", "no transform 'center'; needed center:SPLIT"),
        ("zscore:", "needed zscore:SPLIT"),
        ("none,l2", "no transform 'none'; stands alone"),
        ("power:0", "P must be a number above 0, is '0'"),
        ("power:x", "P must be a number above 0, is 'x'"),
        ("pca:train", "needed pca:SPLIT:DIM"),
        ("pca:train:0", "needed pca:SPLIT:DIM"),
        ("pca:64", "needed pca:SPLIT:DIM"),
        ("whiten", r"needed whiten:SPLIT\[:DIM\]"),
    ],
)
def test_a_wrong_chain_is_refused_with_what_there_is(text: str, reason: str) -> None:
    with pytest.raises(ScoringError, match=reason):
        parse_chain(text)


@pytest.mark.parametrize("text", ["pca:train:13", "whiten:train:13"])
def test_more_components_than_dimensions_that_vary_are_refused(text: str) -> None:
    with pytest.raises(ScoringError, match=f"{text}: the rows vary in 12 dimensions only"):
        transformed(text)


def test_rows_that_do_not_vary_have_no_components() -> None:
    with pytest.raises(ScoringError, match="the 4 rows are all the same"):
        transformed("pca:train:2", train=np.ones((4, 12), np.float32))


def test_components_of_too_many_dimensions_are_refused() -> None:
    wide = np.zeros((5000, 5000), np.float32)
    with pytest.raises(ScoringError, match=r"5,000 rows of 5,000 dimensions.*use center or zscore"):
        transformed("pca:train:2", wide[:1], train=wide)


def runs(store: FeatureStore, *texts: str) -> list[str]:
    found = score_stores([store], episodes=PLAN, classifiers=["1nn", "prototype"], transforms=texts)
    return [f"{r.summary.n_shot} {r.summary.transform} {r.summary.classifier}" for r in found.runs]


def test_runs_come_in_the_order_stores_shots_transforms_classifiers(tmp_path: Path) -> None:
    store = two_splits(tmp_path / "two.h5")
    assert runs(store, "zscore:train", "none") == [
        *("1 zscore:train 1nn", "1 zscore:train prototype", "1 none 1nn", "1 none prototype"),
        *("2 zscore:train 1nn", "2 zscore:train prototype", "2 none 1nn", "2 none prototype"),
    ]


def test_fitting_on_the_scored_images_is_shown_as_transductive(tmp_path: Path) -> None:
    store = two_splits(tmp_path / "two.h5")
    copy = two_splits(tmp_path / "copy.h5")
    assert runs(store, "l2,center:test")[0] == "1 l2,center:test (transductive) 1nn"
    other = f"center:{copy.path}:test"
    assert runs(store, other)[0] == f"1 {other} (transductive) 1nn"


def test_a_split_of_another_store_of_the_same_encoder_serves(tmp_path: Path) -> None:
    store = two_splits(tmp_path / "two.h5")
    alone = open_store(write_store(tmp_path / "test.h5", TEST, even_labels(n_classes=6, n_per_class=12)))
    text = f"zscore:{store.path}:train"
    here = score_stores([store], episodes=PLAN, classifiers=["1nn"], transforms=["zscore:train"])
    there = score_stores([alone], episodes=PLAN, classifiers=["1nn"], transforms=[text])
    for one, other in zip(here.runs, there.runs, strict=True):
        assert (one.predictions == other.predictions).all()
        assert other.summary.transform == text


def test_a_missing_split_is_an_error_that_says_how_to_extract_it(tiny_store: Path) -> None:
    reason = "transform zscore:train needs split 'train', it has test; add it with fsnl-extract --split train"
    with pytest.raises(MismatchError, match=reason):
        runs(open_store(tiny_store), "zscore:train")


def test_a_store_without_its_split_is_explained(tmp_path: Path) -> None:
    store = two_splits(tmp_path / "two.h5")
    with pytest.raises(MismatchError, match=r"write two.h5:SPLIT to name one of its splits"):
        runs(store, "center:two.h5")


def test_a_store_of_another_encoder_is_refused_by_the_fields_that_differ(tmp_path: Path) -> None:
    store = two_splits(tmp_path / "two.h5")
    other = two_splits(tmp_path / "other.h5", encoder="another")
    with pytest.raises(
        MismatchError, match=r"needs the encoder of .*two.h5; this has name another instead of"
    ):
        runs(store, f"center:{other.path}:train")


def test_values_that_a_transform_makes_infinite_are_refused_by_image(tmp_path: Path) -> None:
    store = two_splits(tmp_path / "two.h5", test=TEST * np.float32(1e25))
    reason = r"72 of 72 embeddings hold NaN or infinity after transform power:2 \('test-0/00000.png', "
    with pytest.raises(ScoringError, match=reason):
        runs(store, "power:2")


def test_rows_to_fit_on_that_are_not_finite_are_refused_by_image(tmp_path: Path) -> None:
    train = TRAIN.copy()
    train[7, 3] = np.nan
    store = two_splits(tmp_path / "two.h5", train=train)
    with pytest.raises(
        ScoringError, match=r"1 of 200 embeddings hold NaN or infinity \('train-0/00007.png'\)"
    ):
        runs(store, "zscore:train")


def test_simpleshot_cl2n_worked_by_hand(tmp_path: Path) -> None:
    """Mean of train (1, 1). Centred and normalised, way 0 is (1, 0), way 1 is (0, 1), and the query, at
    (7, 5), is (6, 4) / sqrt(52) = (0.83, 0.55): nearer to way 0, at squared distances 0.34 and 0.89.
    As the rows lie, way 1 at (1, 4) is nearer than way 0 at (41, 1): 37 against 1172.
    """
    train = np.array([[0, 0], [2, 2], [0, 2], [2, 0], [1, 1]], np.float32)
    test = np.array([[41, 1], [7, 5], [1, 4], [1, 9], [-5, 1], [-7, 1]], np.float32)
    with new_store(tmp_path / "hand.h5", header(), overwrite=True) as store:
        for split, rows, labels in (("train", train, [0] * 5), ("test", test, [0, 0, 1, 1, 2, 2])):
            batch = [(rows, np.arange(len(rows), dtype=np.uint64))]
            store.add_split(listing(np.array(labels), split=split), batch, request={})
    opened = open_store(tmp_path / "hand.h5")
    plan = replace(PLAN, n_way=2, shots=(1,), n_query=1, n_episodes=200)
    both = score_stores(
        [opened], episodes=plan, classifiers=["prototype"], transforms=["none", "center:train,l2"]
    )
    [episode_set] = both.episode_sets.values()
    episodes = episode_set.episodes
    asked = (episodes.classes == [0, 1]).all(axis=1) & (episodes.query[:, 0, 0] == 1)
    asked &= episodes.support[:, 1, 0] == 2
    assert asked.any()
    plain, simple = both.runs
    assert (plain.predictions[asked, 0, 0] == 1).all()
    assert (simple.predictions[asked, 0, 0] == 0).all()
