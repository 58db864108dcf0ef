"""The feature store: written and read again, its layout as other programs see it, damage of every kind."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import clusters, even_labels, header, listing, write_store

from fsnl.cache import reader
from fsnl.cache.arrays import F32, U64
from fsnl.cache.errors import CacheError, FormatError, FsnlError, MismatchError, OccupiedError, WriteError
from fsnl.cache.fingerprint import image_digest, labels_sha256, split_fingerprint
from fsnl.cache.home import newest_store
from fsnl.cache.reader import open_store
from fsnl.cache.schema import LabelsUsed, Listing, StoreHeader
from fsnl.cache.writer import new_store

# What a file system may hold; NUL it may not.
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=300)
FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@st.composite
def splits(draw: st.DrawFn) -> tuple[Listing, F32, U64]:
    """A listing with names of any kind, embeddings of any bits, digests of any size."""
    n_classes = draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(1, 4), min_size=n_classes, max_size=n_classes))
    labels = np.repeat(np.arange(n_classes, dtype=np.int64), counts)
    names = draw(st.lists(NAMES, min_size=n_classes, max_size=n_classes, unique=True))
    ids = draw(st.lists(NAMES, min_size=len(labels), max_size=len(labels), unique=True))
    dim = draw(st.integers(1, 5))
    values = draw(st.lists(FLOATS, min_size=len(labels) * dim, max_size=len(labels) * dim))
    embeddings = np.array(values, dtype=np.float32).reshape(-1, dim)
    digests = draw(st.lists(st.integers(0, 2**64 - 1), min_size=len(labels), max_size=len(labels)))
    rows = listing(labels, class_names=sorted(names), image_ids=ids)
    return rows, embeddings, np.array(digests, dtype=np.uint64)


def batches(embeddings: F32, digests: U64, *, size: int = 3) -> Iterator[tuple[F32, U64]]:
    for i in range(0, len(embeddings), size):
        yield embeddings[i : i + size], digests[i : i + size]


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def store(tiny_store: Path, tmp_path: Path) -> Path:
    """A copy of the tiny store, to be damaged."""
    return Path(shutil.copy(tiny_store, tmp_path / "store.h5"))


@given(splits(), st.integers(1, 5))
def test_what_is_written_is_read_again(case: tuple[Listing, F32, U64], size: int) -> None:
    rows, embeddings, digests = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store.h5")
        with new_store(path, header(), overwrite=False) as store:
            store.add_split(
                rows, batches(embeddings, digests, size=size), request={"why": rows.class_names[0]}
            )
        opened = open_store(path)
        features = opened.features("test")
        assert contents(Path(folder)) == ["store.h5"]
    assert opened.header == header()
    assert opened.requests == {"test": {"why": rows.class_names[0]}}
    assert opened.fingerprints == {"test": split_fingerprint(header(), rows)}
    # Bit for bit, NaN and its kinds included.
    assert features.embeddings.tobytes() == embeddings.tobytes()
    assert features.embeddings.shape == embeddings.shape
    assert features.embeddings.dtype == np.float32
    np.testing.assert_array_equal(features.labels, rows.labels)
    np.testing.assert_array_equal(features.image_digests, digests)
    assert (features.class_names, features.image_ids) == (rows.class_names, rows.image_ids)
    assert features.labels_sha256 == labels_sha256(rows.class_names, rows.image_ids, rows.labels)


@pytest.mark.parametrize(
    "changed",
    [
        header(labels_used=LabelsUsed(train=None, val=None)),
        header(encoder="torchvision:résnet"),
        replace(header(), preprocessing=None),
    ],
)
def test_the_header_is_read_again(changed: StoreHeader, tmp_path: Path) -> None:
    labels = even_labels(n_classes=2, n_per_class=2)
    with new_store(tmp_path / "store.h5", changed, overwrite=False) as store:
        given = batches(np.ones((4, 1), np.float32), np.arange(4, dtype=np.uint64))
        store.add_split(listing(labels), given, request={})
    assert open_store(tmp_path / "store.h5").header == changed


def test_splits_are_read_each_by_its_name_and_copied_as_they_are(tiny_store: Path, tmp_path: Path) -> None:
    labels = even_labels(n_classes=3, n_per_class=2)
    path = tmp_path / "both.h5"
    with new_store(path, header(), overwrite=False) as store:
        store.copy_split(tiny_store, "test")
        rows = listing(labels, split="train")
        store.add_split(rows, [(np.ones((6, 8), np.float32), np.arange(6, dtype=np.uint64))], request={})
    both, before = open_store(path), open_store(tiny_store)
    assert both.splits == ("test", "train")
    assert both.fingerprints["test"] == before.fingerprints["test"]
    copied, original = both.features("test"), before.features("test")
    assert copied.embeddings.tobytes() == original.embeddings.tobytes()
    assert copied.image_ids == original.image_ids
    assert len(both.features("train").labels) == 6
    with h5py.File(path) as file:
        for split in ("test", "train"):
            assert file[f"splits/{split}/embeddings"].id.get_offset() % 64 == 0
    with pytest.raises(MismatchError, match=r"no split 'val', only test, train; .* --split val"):
        both.features("val")


def test_the_layout_is_that_of_the_written_format(tiny_store: Path) -> None:
    with h5py.File(tiny_store) as file:
        assert set(file.attrs) == {
            "format",
            "format_version",
            "complete",
            "contents_sha256",
            "created_by",
            "created",
            "dataset",
            "encoder",
            "preprocessing",
            "environment",
        }
        assert file.attrs["format_version"] == 1
        assert file.attrs["complete"] == np.True_
        group = file["splits/test"]
        assert set(group.attrs) == {"contents_sha256", "fingerprint", "labels_sha256", "request"}
        kinds = {name: dataset.dtype.str for name, dataset in group.items()}
        assert kinds["embeddings"] == "<f4"
        assert kinds["labels"] == "<i8"
        assert kinds["image_digests"] == "<u8"
        embeddings = group["embeddings"]
        assert (embeddings.chunks, embeddings.compression, embeddings.shape) == (None, None, (72, 8))
        assert embeddings.id.get_offset() % 64 == 0
        dtypes = [group[name].dtype for name in ("class_names", "image_ids")]
        dtypes += [file.attrs.get_id(name).dtype for name in ("format", "encoder", "created")]
        dtypes += [group.attrs.get_id(name).dtype for name in ("fingerprint", "request")]
        texts = [h5py.check_string_dtype(dtype) for dtype in dtypes]
        assert all(text is not None and text.encoding == "utf-8" and text.length for text in texts)


def test_metadata_carry_checksums(tiny_store: Path) -> None:
    # The superblock's version: 2 and 3 have one, and with them every header below. 0 and 1 have not.
    assert tiny_store.read_bytes()[8] >= 2


def test_many_embeddings_are_mapped_and_not_read(tiny_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = open_store(tiny_store).features("test").embeddings
    monkeypatch.setattr(reader, "WHOLE_READ_BYTES", 0)
    mapped = open_store(tiny_store).features("test").embeddings
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    np.testing.assert_array_equal(mapped, whole)


def test_nothing_is_at_the_path_before_the_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "store.h5"
    labels = even_labels(n_classes=2, n_per_class=3)
    seen = []

    def watched() -> Iterator[tuple[F32, U64]]:
        for batch in batches(np.ones((6, 2), np.float32), np.arange(6, dtype=np.uint64)):
            seen.append(path.exists())
            yield batch

    with new_store(path, header(), overwrite=False) as store:
        store.add_split(listing(labels), watched(), request={})
        seen.append(path.exists())
    assert seen == [False, False, False]
    assert contents(tmp_path) == ["store.h5"]


class Interrupted(Exception):
    """Something went wrong in the middle."""


@pytest.mark.parametrize("error", [Interrupted, KeyboardInterrupt, DeprecationWarning])
@pytest.mark.parametrize("there_before", [False, True])
def test_an_error_in_the_middle_leaves_what_was_there(
    error: type[BaseException], there_before: bool, tiny_store: Path, tmp_path: Path
) -> None:
    path = tmp_path / "store.h5"
    if there_before:
        shutil.copy(tiny_store, path)
    before = contents(tmp_path)

    def broken() -> Iterator[tuple[F32, U64]]:
        yield np.ones((3, 2), np.float32), np.arange(3, dtype=np.uint64)
        raise error

    with pytest.raises(error), new_store(path, header(), overwrite=True) as store:
        store.add_split(listing(even_labels(n_classes=2, n_per_class=3)), broken(), request={})
    assert contents(tmp_path) == before
    if there_before:
        assert path.read_bytes() == tiny_store.read_bytes()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(3, 2)], r"the batches hold 3 rows, the listing 6"),
        ([], r"the batches hold 0 rows, the listing 6"),
        ([(6, 2), (6, 2)], r"the batches hold 12 rows, the listing 6"),
        ([(5, 2), (2, 2)], r"the batches hold 7 rows, the listing 6"),
        ([(3, 2), (3, 3)], r"a batch of shape \(3, 3\) after others of D = 2"),
        ([(3, 2), (3, 1)], r"a batch of shape \(3, 1\) after others of D = 2"),
    ],
)
def test_batches_that_do_not_add_up_are_refused(
    shapes: list[tuple[int, int]], message: str, tmp_path: Path
) -> None:
    rows = listing(even_labels(n_classes=2, n_per_class=3))
    given = [(np.ones(shape, np.float32), np.zeros(shape[0], np.uint64)) for shape in shapes]
    with (
        pytest.raises(ValueError, match=message),
        new_store(tmp_path / "store.h5", header(), overwrite=False) as store,
    ):
        store.add_split(rows, given, request={})
    assert contents(tmp_path) == []


def test_a_store_without_a_split_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.h5"
    with pytest.raises(WriteError, match="at least one split"), new_store(path, header(), overwrite=False):
        pass
    assert contents(tmp_path) == []


def test_what_lies_at_the_path_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store.h5"
    path.write_text("a diary")
    with (
        pytest.raises(OccupiedError, match=r"store.h5: exists already; use another --out, or --force"),
        new_store(path, header(), overwrite=False),
    ):
        pass
    assert path.read_text() == "a diary"
    write_store(path, np.ones((4, 2)), even_labels(n_classes=2, n_per_class=2))
    assert open_store(path).splits == ("test",)


def test_what_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store.h5"

    def disturbed() -> Iterator[tuple[F32, U64]]:
        yield np.ones((4, 2), np.float32), np.arange(4, dtype=np.uint64)
        path.write_text("a diary")

    rows = listing(even_labels(n_classes=2, n_per_class=2))
    with (
        pytest.raises(OccupiedError, match="meanwhile by another process"),
        new_store(path, header(), overwrite=False) as store,
    ):
        store.add_split(rows, disturbed(), request={})
    assert path.read_text() == "a diary"
    assert contents(tmp_path) == ["store.h5"]


@pytest.mark.parametrize("name", ["n" * 252, "字" * 84, "🦉" * 62 + "nnnn"])
def test_the_longest_names_that_a_file_may_have_can_be_written(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.h5"
    assert len(path.name.encode()) == 255
    write_store(path, np.ones((4, 2)), even_labels(n_classes=2, n_per_class=2))
    assert open_store(path).splits == ("test",)


def test_a_name_longer_than_that_is_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 256)
    with pytest.raises(WriteError, match="File name too long"):
        write_store(path, np.ones((4, 2)), even_labels(n_classes=2, n_per_class=2))
    with pytest.raises(FormatError, match="cannot be read: File name too long"):
        open_store(path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"there is no folder .*nowhere; make it first"):
        write_store(
            tmp_path / "nowhere" / "store.h5", np.ones((4, 2)), even_labels(n_classes=2, n_per_class=2)
        )


def test_a_new_file_has_the_permissions_that_the_user_gives_new_files(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        path = write_store(tmp_path / "store.h5", np.ones((4, 2)), even_labels(n_classes=2, n_per_class=2))
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o640


def missing(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def text(path: Path) -> None:
    path.write_text("a diary\n" * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@contextmanager
def edited(path: Path) -> Iterator[h5py.File]:
    """The file, to be changed; it then goes without checksums, as one that another program made."""
    with h5py.File(path, "r+") as file:
        yield file
        for group in (file, file.get("splits"), file.get("splits/test")):
            if group is not None:
                del group.attrs["contents_sha256"]


def foreign(path: Path) -> None:
    path.unlink()
    with h5py.File(path, "w") as file:
        file["x"] = 1


def episodes_format(path: Path) -> None:
    with edited(path) as file:
        file.attrs["format"] = "fsnl.episodes"


def later_version(path: Path) -> None:
    with edited(path) as file:
        file.attrs["format_version"] = 2


def earlier_version(path: Path) -> None:
    with edited(path) as file:
        file.attrs["format_version"] = 0


def incomplete(path: Path) -> None:
    with edited(path) as file:
        del file.attrs["complete"]


def no_encoder(path: Path) -> None:
    with edited(path) as file:
        del file.attrs["encoder"]


def encoder_of_another_shape(path: Path) -> None:
    with edited(path) as file:
        file.attrs["encoder"] = '{"name": "pixels"}'


def encoder_no_json(path: Path) -> None:
    with edited(path) as file:
        file.attrs["encoder"] = "pixels"


def no_splits(path: Path) -> None:
    with edited(path) as file:
        del file["splits"]


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (missing, "no such feature store"),
    (folder, "is a folder, needed a feature store"),
    (text, "not an HDF5 file, needed a feature store"),
    (empty, "truncated or damaged feature store .*; make it again"),
    (half, "truncated or damaged feature store .*; make it again"),
    (foreign, "is an HDF5 file that fsnl did not make, needed a feature store"),
    (episodes_format, "is an episode file, needed a feature store"),
    (later_version, "format_version 2, this fsnl reads 1; update fsnl"),
    (earlier_version, "format_version 0, this fsnl reads 1; make the file again"),
    (incomplete, "is incomplete; extract again"),
    (no_encoder, "damaged feature store: attribute encoder of / is missing"),
    (encoder_of_another_shape, "damaged feature store: attribute encoder of / does not hold what it should"),
    (encoder_no_json, "damaged feature store: attribute encoder is not JSON"),
    (no_splits, "damaged feature store: .*splits"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_a_file_that_is_no_whole_store_is_refused_by_name(
    damage: Callable[[Path], None], message: str, store: Path
) -> None:
    damage(store)
    with pytest.raises(FormatError, match=message) as caught:
        open_store(store)
    assert str(caught.value).startswith(f"{store}: ")
    assert "\n" not in str(caught.value)
    assert caught.value.path == store


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("labels", np.zeros(71, np.int64), "differ in length"),
        ("labels", np.zeros(72), "labels is not an integer array of 1 dimensions"),
        ("labels", np.full(72, 6), r"labels outside 0\.\.5"),
        ("labels", np.full(72, -1), r"labels outside 0\.\.5"),
        ("image_ids", np.zeros(72, "S3"), "split 'test': names, ids or labels do not fit labels_sha256"),
        ("image_ids", np.full(72, b"\xff"), "image_ids holds text that is not UTF-8"),
        ("image_ids", np.zeros(72), "image_ids is not a list of texts"),
        ("embeddings", np.zeros((72, 8)), "embeddings is not a float32 array of two dimensions"),
        ("embeddings", np.zeros(72, np.float32), "embeddings is not a float32 array of two dimensions"),
        ("image_digests", None, "damaged feature store: .*image_digests"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    name: str, value: np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None, message: str, store: Path
) -> None:
    with edited(store) as file:
        del file[f"splits/test/{name}"]
        if value is not None:
            file[f"splits/test/{name}"] = value
    with pytest.raises(FormatError, match=message):
        open_store(store).features("test")


def test_a_store_cut_off_anywhere_is_refused(store: Path) -> None:
    whole = store.read_bytes()
    for size in range(1, len(whole), 97):
        store.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"truncated or damaged|not an HDF5 file"):
            open_store(store).features("test")


def test_a_flipped_byte_anywhere_is_refused_or_changes_one_number(store: Path) -> None:
    whole = store.read_bytes()
    before = open_store(store).features("test")
    n_refused = 0
    for position in range(0, len(whole), 101):
        store.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            after = open_store(store).features("test")
        except FsnlError:
            n_refused += 1
            continue
        # What has a digest or a checksum is as it was.
        assert after.labels_sha256 == before.labels_sha256
        np.testing.assert_array_equal(after.labels, before.labels)
        assert (after.class_names, after.image_ids) == (before.class_names, before.image_ids)
        n_differ = np.count_nonzero(after.embeddings != before.embeddings)
        n_differ += np.count_nonzero(after.image_digests != before.image_digests)
        assert n_differ <= 1
    assert n_refused > 5


def test_the_newest_whole_store_at_home_is_found(
    tiny_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("FSNL_HOME", str(home))
    with pytest.raises(
        CacheError, match=r"home: holds no feature store; name one, or make one with fsnl-extract"
    ):
        newest_store()
    home.mkdir()
    for age, name in enumerate(("old.h5", "new.h5", "older.h5")):
        shutil.copy(tiny_store, home / name)
        stamp = 1_700_000_000 - 100 * (age if age != 1 else -1)
        os.utime(home / name, (stamp, stamp))
    (home / "latest.h5").write_text("a diary")
    (home / "folder.h5").mkdir()
    shutil.copy(tiny_store, home / "notes.txt")
    assert newest_store().path == home / "new.h5"


def test_the_digest_of_an_image_is_that_of_its_shape_and_bytes() -> None:
    image = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    data = (2).to_bytes(8, "little") + (3).to_bytes(8, "little") + image.tobytes()
    expected = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
    assert image_digest(image) == expected
    assert image_digest(np.asfortranarray(image)) == expected
    assert image_digest(image.reshape(3, 2, 3)) != expected


def test_the_digest_of_labels_is_that_of_names_ids_and_numbers() -> None:
    data = (2).to_bytes(8, "little") + (3).to_bytes(8, "little")
    data += "hen\0öwl\0".encode() + b"a\0b\0c\0" + b"".join(i.to_bytes(8, "little") for i in (0, 0, 1))
    labels = np.array([0, 0, 1])
    expected = hashlib.sha256(data).hexdigest()
    assert labels_sha256(("hen", "öwl"), ("a", "b", "c"), labels) == expected
    assert labels_sha256(("hen", "öwl"), ("a", "bc", ""), labels) != expected


def test_the_fingerprint_of_a_split_is_of_what_decides_its_embeddings() -> None:
    rows = listing(even_labels(n_classes=2, n_per_class=2))
    before = split_fingerprint(header(), rows)
    same = replace(header(labels_used=LabelsUsed(train=7, val=None)), environment={"device": "cuda:0"})
    assert split_fingerprint(same, rows) == before
    others = [
        split_fingerprint(header(encoder="pixels"), rows),
        split_fingerprint(replace(header(), preprocessing=None), rows),
        split_fingerprint(header(dataset="digits"), rows),
        split_fingerprint(header(), replace(rows, split="train")),
        split_fingerprint(header(), replace(rows, source_sizes=rows.source_sizes + 1)),
        split_fingerprint(header(), replace(rows, class_names=("a", "b"))),
    ]
    assert len({before, *others}) == 1 + len(others)


@settings(max_examples=20)
@given(st.integers(2, 40), st.integers(1, 40))
def test_embeddings_of_any_shape_lie_aligned(n_rows: int, dim: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        labels = np.arange(n_rows, dtype=np.int64)
        path = write_store(Path(folder, "s.h5"), clusters(n_classes=n_rows, n_per_class=1, dim=dim), labels)
        with h5py.File(path) as file:
            assert file["splits/test/embeddings"].id.get_offset() % 64 == 0
