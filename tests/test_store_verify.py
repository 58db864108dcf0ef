"""Checksums of a feature store: what they cover, and that no damage goes by unseen."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
from checkout import environment
from stores import clusters, even_labels, header, listing, write_store

from fsnl.cache.errors import FormatError
from fsnl.cache.reader import open_store
from fsnl.cache.verify import verify_store
from fsnl.cache.writer import new_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    labels = even_labels(n_classes=3, n_per_class=4)
    return write_store(tmp_path / "store.h5", clusters(n_classes=3, n_per_class=4, dim=4), labels)


def test_a_store_as_written_passes_and_so_does_one_with_a_copied_split(store: Path, tmp_path: Path) -> None:
    verify_store(store)
    both = tmp_path / "both.h5"
    with new_store(both, header(), overwrite=False) as writer:
        writer.copy_split(store, "test")
        rows = listing(even_labels(n_classes=2, n_per_class=1), split="train")
        writer.add_split(rows, [(np.ones((2, 4), np.float32), np.arange(2, dtype=np.uint64))], request={})
    verify_store(both)


def test_checksums_are_those_of_the_written_format(store: Path) -> None:
    # Independent of fsnl, as FORMAT.md has it.
    import hashlib

    def contents(group: h5py.Group) -> str:
        plain = {name: value for name, value in group.attrs.items() if name != "contents_sha256"}
        record = {
            "attributes": {n: v.decode() if isinstance(v, bytes) else v.item() for n, v in plain.items()},
            "datasets": {
                name: {"dtype": d.dtype.str, "shape": list(d.shape), "sha256": d.attrs["sha256"].decode()}
                for name, d in group.items()
                if isinstance(d, h5py.Dataset)
            },
            "groups": {n: contents(g) for n, g in group.items() if isinstance(g, h5py.Group)},
        }
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert group.attrs["contents_sha256"].decode() == hashlib.sha256(text.encode()).hexdigest()
        return str(group.attrs["contents_sha256"].decode())

    with h5py.File(store) as file:
        contents(file)
        for dataset in file["splits/test"].values():
            digest = hashlib.sha256(dataset[()].tobytes()).hexdigest()
            assert dataset.attrs["sha256"].decode() == digest, dataset.name


@pytest.mark.parametrize("name", ["embeddings", "labels", "class_names", "image_ids", "image_digests"])
def test_a_changed_value_is_found_and_its_array_named(name: str, store: Path) -> None:
    with h5py.File(store, "r+") as file:
        values = file[f"splits/test/{name}"]
        values[0] = values[5] if values.dtype.kind != "S" else b"other"
        assert values[0].tobytes() != b""
    with pytest.raises(FormatError, match=rf"store.h5: damaged: /splits/test/{name} not as written; restore"):
        verify_store(store)


@pytest.mark.parametrize("where", ["/", "/splits", "/splits/test"])
def test_a_changed_attribute_is_refused_by_every_reader(where: str, store: Path) -> None:
    with h5py.File(store, "r+") as file:
        file[where].attrs["created"] = "yesterday"
    match = rf"store.h5: damaged or edited: attributes or arrays of {where} are not as they were written"
    for read in (open_store, verify_store):
        with pytest.raises(FormatError, match=match):
            read(store)


def test_an_array_that_was_exchanged_is_refused_by_every_reader(store: Path) -> None:
    with h5py.File(store, "r+") as file:
        del file["splits/test/embeddings"]
        file["splits/test/embeddings"] = np.zeros((12, 4), np.float32)
    with pytest.raises(
        FormatError, match="attributes or arrays of /splits/test are not as they were written"
    ):
        open_store(store)


def test_a_store_of_another_program_is_read_but_cannot_be_verified(store: Path) -> None:
    with h5py.File(store, "r+") as file:
        for name in ("/", "/splits", "/splits/test"):
            del file[name].attrs["contents_sha256"]
    assert open_store(store).splits == ("test",)
    with pytest.raises(FormatError, match="has no checksums to verify"):
        verify_store(store)


def test_large_arrays_are_hashed_in_blocks(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsnl.cache.checksums.BLOCK_BYTES", 40)
    verify_store(store)


READ = """
import fcntl, sys
from fsnl.cache.reader import open_store
file = open(sys.argv[1], "rb")
fcntl.flock(file, fcntl.LOCK_SH)
print(open_store(sys.argv[1]).features().embeddings.sum())
input()
"""


def test_reading_takes_no_lock_and_minds_none(store: Path) -> None:
    # HDF5's own locks fail on many network file systems, and with them every open.
    fcntl = pytest.importorskip("fcntl")
    command = [sys.executable, "-c", READ, str(store)]
    readers = [
        subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert len({reader.stdout.readline() for reader in readers if reader.stdout}) == 1, "both at once"
    for reader in readers:
        reader.communicate("\n")
    with store.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        store.chmod(0o444)
        assert len(open_store(store).features().labels) == 12


SPOIL = r"""
import sys
from pathlib import Path
import numpy as np
from fsnl.cache.errors import FormatError
from fsnl.cache.reader import open_store
from fsnl.cache.verify import verify_store

store, part, n_parts = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
whole = store.read_bytes()
before = open_store(store).features()
spoiled = store.with_name(f"spoiled-{part}.h5")
at = store.with_name(f"at-{part}")
rng = np.random.default_rng(0)

def equal(after):
    arrays = ("embeddings", "labels", "image_digests")
    return (after.class_names, after.image_ids) == (before.class_names, before.image_ids) and all(
        getattr(after, name).tobytes() == getattr(before, name).tobytes() for name in arrays
    )

def look(data, what):
    at.write_text(what)  # for the reader of a crash
    spoiled.write_bytes(data)
    try:
        verify_store(spoiled)
    except FormatError as error:
        assert str(error).startswith(f"{spoiled}: ") and "\n" not in str(error), (what, error)
        return 0
    assert equal(open_store(spoiled).features()), what
    return 1

n_read = sum(look(whole[:size], f"cut to {size}") for size in range(part, len(whole), n_parts))
assert n_read == 0, "a truncated file was taken for whole"
later = rng.choice(np.arange(4096, len(whole)), size=min(200, len(whole) - 4096), replace=False)
positions = [*range(4096), *later.tolist()]
masks = rng.integers(1, 256, size=len(positions)).tolist()
for position, mask in list(zip(positions, masks))[part::n_parts]:
    flipped = whole[:position] + bytes([whole[position] ^ mask]) + whole[position + 1 :]
    n_read += look(flipped, f"byte {position} ^ {mask}")
print(n_read)
"""


@pytest.mark.slow
def test_every_truncation_and_every_flipped_byte_is_refused_or_harmless(store: Path) -> None:
    # In other processes, so that a crash or a hang of the library would be seen, and is told where.
    def spoil(part: int) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", SPOIL, str(store), str(part), "2"]
        return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=500)

    with ThreadPoolExecutor(2) as pool:
        for part, done in enumerate(pool.map(spoil, range(2))):
            last = store.with_name(f"at-{part}").read_text()
            assert done.returncode == 0, f"{last}: exit {done.returncode}\n{done.stderr}"
            assert int(done.stdout) > 100  # bytes that nothing is stored in
