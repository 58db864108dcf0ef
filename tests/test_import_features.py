"""fsnl-import: every layout that people pass around, made here as its makers describe it."""

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from commands import assert_refused, done, fsnl, tree

from fsnl.cache.arrays import F32
from fsnl.cache.reader import open_store
from fsnl.cache.schema import Features
from fsnl.cache.verify import verify_store

N_CLASSES, N_IMAGES, DIM = 12, 5, 7
FEATURES = np.random.default_rng(0).normal(size=(N_CLASSES, N_IMAGES, DIM)).astype(np.float32)
FEATURES[3, 2] = 0  # a real row that happens to be zero
FLAT = FEATURES.reshape(-1, DIM)
LABELS = np.repeat(np.arange(N_CLASSES), N_IMAGES)


def imported(*arguments: str | Path, out: Path) -> Features:
    outcome = done("import", *arguments, "--out", out)
    assert outcome.stdout == f"{out}\n"
    verify_store(out)
    return open_store(out).features()


def assert_all_there(features: Features) -> None:
    """The features above, class by class in the order of the names 00 to 11."""
    assert features.class_names == tuple(f"{c:02d}" for c in range(N_CLASSES))
    np.testing.assert_array_equal(features.labels, LABELS)
    assert features.embeddings.tobytes() == FLAT.tobytes()
    assert not features.image_digests.any()
    assert len(set(features.image_ids)) == len(FLAT)


@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_a_pickled_dict_of_vectors_by_class(protocol: int, tmp_path: Path) -> None:
    # PT-MAP, S2M2: collections.defaultdict(list), label -> [(D,) float32, ...], in the order of the batches
    output: defaultdict[int, list[F32]] = defaultdict(list)
    for row in np.random.default_rng(1).permutation(len(FLAT)).tolist():
        output[int(LABELS[row])].append(FLAT[row])
    (tmp_path / "output.plk").write_bytes(pickle.dumps(output, protocol=protocol))
    features = imported(tmp_path / "output.plk", out=tmp_path / "s.h5")
    assert features.class_names == tuple(f"{c:02d}" for c in range(N_CLASSES))
    for label in range(N_CLASSES):
        rows = features.labels == label
        np.testing.assert_array_equal(features.embeddings[rows], output[label])
    assert features.image_ids[:2] == ("00/0", "00/1")


def test_simpleshot_s_list_of_means_features_and_logits(tmp_path: Path) -> None:
    output = {c: list(FEATURES[c]) for c in range(N_CLASSES)}
    logits = {c: [np.zeros(3, np.float32)] * N_IMAGES for c in range(N_CLASSES)}
    content = [FLAT.mean(axis=0), np.zeros(3, np.float32), output, logits]
    (tmp_path / "output.plk").write_bytes(pickle.dumps(content))
    assert_all_there(imported(tmp_path / "output.plk", out=tmp_path / "s.h5"))


@pytest.mark.parametrize("keys", [["owl", "hen"], [b"owl", b"hen"], [np.int64(7), np.int64(30)], [3, 21]])
def test_classes_may_be_called_anything(keys: list[Any], tmp_path: Path) -> None:
    content = {keys[0]: list(FEATURES[0]), keys[1]: list(FEATURES[1][:3])}
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(content))
    features = imported(tmp_path / "x.pkl", out=tmp_path / "s.h5")
    names = {"owl": ("hen", "owl"), b"owl": ("hen", "owl"), 7: ("07", "30"), 3: ("03", "21")}[keys[0]]
    assert features.class_names == names
    first = 1 if names[0] == "hen" else 0
    np.testing.assert_array_equal(features.embeddings[features.labels == 0], content[keys[first]])


def test_hdf5_of_closerlook_honours_count_and_keeps_rows_of_zeros(tmp_path: Path) -> None:
    # save_features.py: space for all batches is made in advance, and `count` says how much was filled.
    with h5py.File(tmp_path / "novel.hdf5", "w") as file:
        labels = file.create_dataset("all_labels", (len(FLAT) + 9,), dtype="i")
        feats = file.create_dataset("all_feats", (len(FLAT) + 9, DIM), dtype="f")
        feats[: len(FLAT)], labels[: len(FLAT)] = FLAT, LABELS
        count = file.create_dataset("count", (1,), dtype="i")
        count[0] = len(FLAT)
    assert_all_there(imported(tmp_path / "novel.hdf5", out=tmp_path / "s.h5"))


def test_hdf5_of_feature_maps_is_flattened(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "novel.hdf5", "w") as file:
        file["all_feats"] = np.arange(4 * 2 * 3 * 3, dtype=np.float32).reshape(4, 2, 3, 3)
        file["all_labels"], file["count"] = [0, 1, 0, 1], 4
    features = imported(tmp_path / "novel.hdf5", out=tmp_path / "s.h5")
    assert features.embeddings.shape == (4, 18)
    assert features.image_ids == ("0", "2", "1", "3")
    np.testing.assert_array_equal(features.embeddings[:, 0], [0, 36, 18, 54])


@pytest.mark.parametrize("old", [False, True])
def test_a_torch_tensor_of_easy(old: bool, tmp_path: Path) -> None:
    import torch

    torch.save(torch.from_numpy(FEATURES), tmp_path / "f.pt", _use_new_zipfile_serialization=not old)
    assert_all_there(imported(tmp_path / "f.pt", out=tmp_path / "s.h5"))


@pytest.mark.parametrize("names", [("features", "labels"), ("X", "y"), ("feats", "targets")])
def test_npz_with_labels(names: tuple[str, str], tmp_path: Path) -> None:
    order = np.random.default_rng(2).permutation(len(FLAT))
    arrays: dict[str, Any] = {names[0]: FLAT[order].astype("f8"), names[1]: LABELS[order]}
    np.savez(tmp_path / "f.npz", **arrays)
    features = imported(tmp_path / "f.npz", out=tmp_path / "s.h5")
    for label in range(N_CLASSES):
        rows = np.flatnonzero(LABELS[order] == label)
        np.testing.assert_array_equal(features.embeddings[features.labels == label], FLAT[order][rows])
        ids = [name for name, c in zip(features.image_ids, features.labels, strict=True) if c == label]
        assert ids == [f"{row:02d}" for row in rows]


def test_npy_of_classes_images_dimensions_or_with_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    assert_all_there(imported(tmp_path / "f.npy", out=tmp_path / "a.h5"))
    np.save(tmp_path / "flat.npy", FLAT)
    np.save(tmp_path / "y.npy", LABELS.astype("u1"))
    arguments = (tmp_path / "flat.npy", "--labels", tmp_path / "y.npy")
    assert_all_there(imported(*arguments, out=tmp_path / "b.h5"))
    np.save(tmp_path / "names.npy", np.array([f"{c:02d}" for c in LABELS]))
    arguments = (tmp_path / "flat.npy", "--labels", tmp_path / "names.npy")
    assert_all_there(imported(*arguments, out=tmp_path / "c.h5"))


def test_what_was_imported_is_said_and_can_be_scored(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    options = ("--encoder", "easy-resnet12", "--dataset", "miniimagenet", "--labels-used", "38400")
    outcome = done("import", tmp_path / "f.npy", *options, "--out", tmp_path / "s.h5")
    assert "test: 12 classes, 60 images, array (classes, images, D), float32" in outcome.stderr
    store = open_store(tmp_path / "s.h5")
    assert (store.header.encoder.name, store.header.dataset.name) == ("easy-resnet12", "miniimagenet")
    assert store.header.encoder.labels_used.train == 38400
    assert store.header.preprocessing is None
    scored = done("score", tmp_path / "s.h5", "--query", "2", "--shot", "1", "--episodes", "20")
    assert "encoder easy-resnet12, unknown px" in scored.stdout
    inspected = done("inspect", tmp_path / "s.h5").stdout
    assert "images    unknown" in inspected
    assert "pixel-identical" not in inspected


def test_a_second_split_is_added_and_the_same_again_changes_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "novel.npy", FEATURES)
    np.save(tmp_path / "base.npy", FEATURES[:4] + 1)
    out = tmp_path / "s.h5"
    done("import", tmp_path / "novel.npy", "--out", out)
    done("import", tmp_path / "base.npy", "--split", "train", "--out", out)
    store = open_store(out)
    assert store.splits == ("test", "train")
    assert_all_there(store.features())
    assert len(store.features("train").labels) == 20
    verify_store(out)
    before = tree(tmp_path)
    assert (
        "is complete: train imported before"
        in done("import", tmp_path / "base.npy", "--split", "train", "--out", out).stderr
    )
    other = fsnl("import", tmp_path / "base.npy", "--out", out)
    assert_refused(other, "s.h5: its split 'test' has other features; use another --out, or --force")
    named = fsnl("import", tmp_path / "base.npy", "--encoder", "x", "--split", "val", "--out", out)
    assert_refused(named, "s.h5: made for something else: encoder.name is imported, asked x; use another")
    assert tree(tmp_path) == before
    done("import", tmp_path / "base.npy", "--force", "--out", out)
    assert open_store(out).splits == ("test",)


def test_rows_that_are_not_finite_are_told_and_kept(tmp_path: Path) -> None:
    features = FEATURES.astype("f8")
    features[1, 1, 0], features[2, 0, 0] = np.nan, 1e300
    np.save(tmp_path / "f.npy", features)
    outcome = done("import", tmp_path / "f.npy", "--out", tmp_path / "s.h5")
    assert "warning: 2 embeddings are not finite: '06', '10'" in outcome.stderr
    assert "warning: 1 embeddings are all zero: '17'" in outcome.stderr


class Evil:
    def __reduce__(self) -> Any:
        import os

        return os.system, ("touch was-run",)


def test_nothing_that_a_file_asks_for_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    evil: dict[int, object] = {0: [FLAT[0]], 1: [Evil()]}
    Path("x.plk").write_bytes(pickle.dumps(evil))
    np.save("x.npy", np.array([1, Evil()], dtype=object), allow_pickle=True)
    np.savez("x.npz", features=np.array([1, Evil()], dtype=object), labels=[0, 1])
    evil = {0: torch.ones(1), 1: Evil()}
    torch.save(evil, "x.pt")
    torch.save(evil, "old.pt", _use_new_zipfile_serialization=False)
    for name in ("x.plk", "x.npy", "x.npz", "x.pt", "old.pt"):
        outcome = fsnl("import", name, "--out", "s.h5")
        assert_refused(outcome, rf"{name}: refused, for it asks for (posix|os|nt)\.system; ")
    assert not Path("was-run").exists()
    assert not Path("s.h5").exists()
    assert not Path("s.h5.shards").exists()


WRONG: dict[str, tuple[object, str]] = {
    "a-list.pkl": ([1, 2], "holds a list, of no layout that fsnl-import knows"),
    "empty.pkl": ({}, "holds a dict, of no layout"),
    "ragged.pkl": (
        {0: [[1.0, 2.0], [3.0]], 1: [[1.0, 2.0]]},
        "class 0 has no list of vectors, all of one length",
    ),
    "lengths.pkl": ({0: [[1.0, 2.0]], 1: [[1.0]]}, "class 1 has no list of vectors, all of one length"),
    "words.pkl": ({0: ["a"], 1: ["b"]}, "class 0 has no list of vectors"),
    "alone.pkl": ({"owl": [[1.0]]}, r"has one class alone \('owl'\)"),
    "text.txt": (None, "not a pickle, or a damaged one"),
    "flat.npy": (FLAT, r"features of shape \(60, 7\) come without labels; .* --labels"),
    "no-numbers.npy": (np.ones((3, 4, 0), dtype=np.float32), "its features have 0 dimensions"),
    "complex.npy": (FEATURES.astype("c8"), "features are of dtype complex64, needed are real numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_used_is_refused_by_name(name: str, tmp_path: Path) -> None:
    content, message = WRONG[name]
    file = tmp_path / name
    if content is None:
        file.write_text("a diary\n")
    elif isinstance(content, np.ndarray):
        np.save(file, content)
    else:
        file.write_bytes(pickle.dumps(content))
    assert_refused(fsnl("import", file, "--out", tmp_path / "s.h5"), f"{name}: {message}")
    assert list(tmp_path.iterdir()) == [file]


def test_labels_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", FLAT)
    np.save(tmp_path / "y.npy", LABELS[:-1])
    call = ("import", tmp_path / "flat.npy", "--labels", tmp_path / "y.npy", "--out", tmp_path / "s.h5")
    assert_refused(fsnl(*call), r"flat.npy: features of shape \(60, 7\) with 59 labels")
    np.save(tmp_path / "y.npy", LABELS + 0.5)
    assert_refused(fsnl(*call), "flat.npy: labels are not whole numbers")
    assert_refused(fsnl("import", tmp_path / "no.npy", "--out", tmp_path / "s.h5"), "no.npy: no such file")


def test_what_lies_at_out_is_not_overwritten(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    (tmp_path / "s.h5").write_text("a diary")
    outcome = fsnl("import", tmp_path / "f.npy", "--out", tmp_path / "s.h5")
    assert_refused(outcome, "s.h5: not an HDF5 file, needed a feature store; use another --out, or --force")
    assert (tmp_path / "s.h5").read_text() == "a diary"
