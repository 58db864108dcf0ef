"""Pickles and NumPy files of others: arrays and containers come out whole, anything else is refused unrun."""

import builtins
import collections
import io
import os
import pickle
import struct
import subprocess
import sys
import warnings
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import run
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fsnl.cache.errors import PickleError
from fsnl.cache.numpy_files import read_npy, read_npz
from fsnl.cache.pickles import read_pickle, unpickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def back(value: object, protocol: int) -> Any:
    return loads(pickle.dumps(value, protocol=protocol))


def loads(data: bytes) -> Any:
    return unpickle(io.BytesIO(data), path="x.pkl")


def refusal(data: bytes) -> str | None:
    try:
        loads(data)
    except PickleError as error:
        return str(error)
    return None


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self.reduced


@every_protocol
@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "<i8", ">i4", "<f2", "<f4", ">f8", "S3", "U2"])
def test_arrays_of_every_dtype_come_back_equal_in_native_order(dtype: str, protocol: int) -> None:
    array = np.arange(24).astype(dtype).reshape(2, 3, 4)
    for stored in (array, np.asfortranarray(array), array.transpose(1, 0, 2), array[:, ::2], array[:0]):
        read = back(stored, protocol)
        assert type(read) is np.ndarray
        assert read.dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(read, stored)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers(), st.text()), inner)
        | st.tuples(inner, inner)
        | st.sets(st.integers())
        | st.frozensets(st.text())
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(value=json_like, protocol=st.sampled_from(PROTOCOLS))
def test_plain_containers_come_back_equal(value: object, protocol: int) -> None:
    read = back(value, protocol)
    assert read == value
    assert type(read) is type(value)


@settings(deadline=None, max_examples=40)
@given(
    array=arrays.arrays(st.sampled_from(["<f4", ">f8", "<i8", "u1"]), arrays.array_shapes(min_side=0)),
    protocol=st.sampled_from(PROTOCOLS),
)
def test_arrays_in_containers_come_back_equal(array: "np.ndarray[Any, Any]", protocol: int) -> None:
    shared = [array]
    value = {"data": array, 7: [(array, shared), shared], np.int64(3): array[:1]}
    read = back(value, protocol)
    np.testing.assert_array_equal(read["data"], array)
    np.testing.assert_array_equal(read[7][0][0], array)
    np.testing.assert_array_equal(read[3], array[:1])
    assert read[7][0][1] is read[7][1]


@every_protocol
def test_scalars_bytes_and_dicts_with_order_or_default_come_back_plain(protocol: int) -> None:
    ordered = back(OrderedDict([("b", np.float32(0.5)), ("a", bytearray(b"\xff"))]), protocol)
    assert list(ordered.items()) == [("b", 0.5), ("a", bytearray(b"\xff"))]
    assert type(ordered) is dict
    assert type(ordered["b"]) is np.float32
    features: defaultdict[int, list[object]] = defaultdict(list)
    features[1].append(np.ones(2, np.float32))
    read = back(features, protocol)
    assert type(read) is dict
    np.testing.assert_array_equal(read[1], [[1, 1]])


@every_protocol
def test_arrays_of_objects_come_back_with_their_arrays(protocol: int) -> None:
    array = np.empty((2, 2), dtype=object)
    array[0, 0], array[0, 1], array[1, 0] = np.arange(3), [1, 2], {"x": np.zeros(1)}
    read = back(array, protocol)
    assert read.shape == (2, 2)
    np.testing.assert_array_equal(read[0, 0], [0, 1, 2])
    assert read[0, 1] == [1, 2]
    np.testing.assert_array_equal(read[1, 0]["x"], [0.0])
    assert read[1, 1] is None


def test_a_list_that_holds_itself_comes_back_so() -> None:
    loop: list[object] = [np.ones(1)]
    loop.append(loop)
    read = back(loop, 2)
    assert read[1] is read


def test_many_shared_tuples_take_no_time() -> None:
    nested: tuple[object, ...] = (np.ones(1),)
    for _ in range(60):
        nested = (nested, nested)  # 2**60 paths
    assert len(back(nested, 4)) == 2


def test_strings_of_python_2_are_text_of_one_character_per_byte() -> None:
    # As `{'data': numpy.array([1., 2.], 'f4'), 'name': '\xc3\xbc'}` of Python 2 at protocol 2 (and NumPy 1).
    data = (
        b"\x80\x02}q\x00(U\x04dataq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03"
        b"K\x00\x85q\x04U\x01bq\x05\x87q\x06Rq\x07(K\x01K\x02\x85q\x08cnumpy\ndtype\nq\tU\x02f4q\nK\x00K\x01"
        b"\x87q\x0bRq\x0c(K\x03U\x01<q\rNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x0eb\x89"
        b"U\x08\x00\x00\x80?\x00\x00\x00@q\x0ftq\x10bU\x04nameq\x11U\x02\xc3\xbcq\x12u."
    )
    read = loads(data)
    np.testing.assert_array_equal(read["data"], np.array([1, 2], "f4"))
    assert read["data"].dtype == np.float32
    assert read["name"].encode("latin1").decode() == "\N{LATIN SMALL LETTER U WITH DIAERESIS}"


def test_binary_strings_of_python_2_in_protocol_0_are_read() -> None:
    old = (  # as Python 2 pickles numpy.array([0, 255, 10, 39], 'u1')
        b"cnumpy.core.multiarray\n_reconstruct\np0\n(cnumpy\nndarray\np1\n(I0\ntp2\nS'b'\np3\ntp4\nRp5\n"
        b"(I1\n(I4\ntp6\ncnumpy\ndtype\np7\n(S'u1'\np8\nI0\nI1\ntp9\nRp10\n"
        b"(I3\nS'|'\np11\nNNNI-1\nI-1\nI0\ntp12\nbI00\nS\"\\x00\\xff\\n'\"\np13\ntp14\nb."
    )
    np.testing.assert_array_equal(loads(old), [0, 255, 10, 39])


@pytest.mark.parametrize("spelling", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_both_spellings_of_numpys_inside_are_read(spelling: bytes) -> None:
    data = pickle.dumps(np.arange(3), protocol=2)
    for own in (b"numpy._core.multiarray", b"numpy.core.multiarray"):
        data = data.replace(own, spelling)
    np.testing.assert_array_equal(loads(data), [0, 1, 2])


def hostile(target: Path) -> dict[str, object]:
    """Values that would make `target` while they are unpickled, by the name that must be refused."""
    touch = f"touch {target}"
    return {
        f"{os.system.__module__}.system": Calls(os.system, touch),
        "builtins.eval": Calls(eval, f"open({str(target)!r}, 'w')"),
        "builtins.exec": Calls(exec, f"open({str(target)!r}, 'w')"),
        "builtins.getattr": Calls(builtins.getattr, "text", "upper"),
        "subprocess.getoutput": Calls(subprocess.getoutput, touch),
        "click.core.Command": Calls(__import__("click").Command, "x"),
        "collections.namedtuple": Calls(collections.namedtuple, "x", "y"),
        "numpy.fromfile": Calls(np.fromfile, str(target)),
    }


@every_protocol
@pytest.mark.parametrize("place", ["alone", "in a dict", "in a list in a tuple", "as a key", "in an array"])
def test_whatever_is_not_data_is_refused_by_name_and_not_run(
    place: str, protocol: int, tmp_path: Path
) -> None:
    target = tmp_path / "was-run"
    for name, value in hostile(target).items():
        in_array = np.empty(2, dtype=object)
        in_array[1] = value
        held = {
            "alone": value,
            "in a dict": {"features": {"data": np.ones(2), "x": value}},
            "in a list in a tuple": ([1, (2, [value])],),
            "as a key": {value: 1},
            "in an array": in_array,
        }[place]
        file = tmp_path / "features.pkl"
        file.write_bytes(pickle.dumps(held, protocol=protocol, fix_imports=False))
        with pytest.raises(PickleError, match=rf"features.pkl: refused, for it asks for {name}; "):
            read_pickle(file)
        assert not target.exists()


def test_a_class_is_refused_without_its_module_being_imported(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("open('was-run', 'w')\n")
    (tmp_path / "x.pkl").write_bytes(b"cevil\nThing\n.")
    code = "from fsnl.cache.pickles import read_pickle; read_pickle('x.pkl')"
    done = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert "PickleError: x.pkl: refused, for it asks for evil.Thing" in done.stderr
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"(S'touch was-run'\nios\nsystem\n.", r"os\.system"),  # INST, protocol 0
        (b"(cos\nsystem\nS'touch was-run'\no.", r"os\.system"),  # OBJ
        (b"c__builtin__\neval\n(S'1'\ntR.", r"__builtin__\.eval"),
        (b"\x80\x04\x8c\x05numpy\x8c\x15lib.npyio.format.os.x\x93.", r"numpy\.lib\.npyio\.format\.os"),
        (b"Pwas-run\n.", "an object outside the file, 'was-run'"),
        (b"c\x1b[31m\nx\n.", r"'\\x1b\[31m\.x'"),
    ],
)
def test_every_way_to_ask_for_a_name_is_closed(data: bytes, name: str) -> None:
    with pytest.raises(PickleError, match=rf"refused, for it asks for {name}"):
        loads(data)


def forged_dtype(state: object, name: str = "V8") -> bytes:
    """An array of one item whose dtype has this state, and eight bytes that must not become a pointer."""

    class Forged:
        def __reduce__(self) -> Any:
            return np.dtype, (name, False, True), state

    class Array:
        def __reduce__(self) -> Any:
            made = np.zeros(0).__reduce__()
            assert isinstance(made, tuple)
            return made[0], made[1], (1, (1,), Forged(), False, struct.pack("<q", 0x4141414141))

    return pickle.dumps(Array(), protocol=4)


@pytest.mark.parametrize(
    "data",
    [
        forged_dtype((3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0)),
        forged_dtype((3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0), name="f8"),
        forged_dtype((3, "|", (np.dtype("O"), (1,)), None, None, 8, 1, 0), name="f8"),
        forged_dtype((3, "<", None, None, None, 8, 1, 0), name="O8"),
        forged_dtype((3, "<", None, None, None, -1, -1, 0), name="M8[s]"),
        forged_dtype((3, "x", None, None, None, -1, -1, 0), name="f8"),
        forged_dtype((3, "<", None, None, None, -1, -1, 0), name="f4"),
    ],
    ids=["object field", "object field in f8", "subarray", "object", "date", "byte order", "item size"],
)
def test_a_forged_dtype_never_reaches_numpy(data: bytes) -> None:
    with pytest.raises(PickleError, match="damaged one"):
        loads(data)


def test_what_stands_for_a_function_cannot_be_changed_or_kept() -> None:
    change = b"c_codecs\nencode\n(N}S'__doc__'\nS'x'\nstb."  # BUILD with a state of slots
    for data in (change, b"c_codecs\nencode\n.", b"]c_codecs\nencode\na.", b"}c_codecs\nencode\nNs."):
        with pytest.raises(PickleError, match="damaged one"):
            loads(data)


@every_protocol
def test_every_truncation_and_many_flips_give_an_answer_or_an_error_with_the_path(protocol: int) -> None:
    whole = pickle.dumps({"data": np.arange(6, dtype="f4"), "labels": [1, 2], "n": np.int64(3)}, protocol)
    spoiled = [whole[:length] for length in range(len(whole))]
    spoiled += [
        whole[:position] + bytes([whole[position] ^ flip]) + whole[position + 1 :]
        for position in range(len(whole))
        for flip in (1, 0x80, 0xFF)
    ]
    for data in spoiled:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of escapes, in protocol 0
            message = refusal(data)
        assert message is None or (message.startswith("x.pkl: ") and "\n" not in message)


def test_sizes_that_cannot_be_are_refused_before_room_is_made_for_them() -> None:
    with pytest.raises(PickleError, match="object number 4278190080 at byte 2"):
        loads(b"]r\x00\x00\x00\xff.")
    with pytest.raises(PickleError, match="1099511627776 bytes announced at byte 1, more than there are"):
        loads(b"\x96\x00\x00\x00\x00\x00\x01\x00\x00.")


def test_what_is_no_pickle_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(PickleError, match=r"notes.txt: not a pickle, or a damaged one"):
        read_pickle(tmp_path / "notes.txt")
    with pytest.raises(PickleError, match=r"none.pkl: cannot be read: No such file"):
        read_pickle(tmp_path / "none.pkl")
    deep = b"]" * 30_000 + b"a" * 29_999 + b"."
    with pytest.raises(PickleError, match="nested too deeply"):
        loads(deep)


def test_numpy_files_come_back_equal_objects_included(tmp_path: Path) -> None:
    numbers = np.arange(6, dtype=">f4").reshape(2, 3)
    objects = np.empty(2, dtype=object)
    objects[0], objects[1] = {"a": np.ones(2)}, "text"
    np.save(tmp_path / "numbers.npy", numbers)
    np.save(tmp_path / "objects.npy", objects, allow_pickle=True)
    np.savez_compressed(tmp_path / "both.npz", numbers=numbers, objects=objects)
    np.testing.assert_array_equal(read_npy(tmp_path / "numbers.npy"), numbers)
    for read in (read_npy(tmp_path / "objects.npy"), read_npz(tmp_path / "both.npz")["objects"]):
        np.testing.assert_array_equal(read[0]["a"], [1, 1])
        assert read[1] == "text"
    np.testing.assert_array_equal(read_npz(tmp_path / "both.npz")["numbers"], numbers)


def test_a_large_array_of_numbers_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "numbers.npy", np.arange(1000))
    monkeypatch.setattr("fsnl.cache.numpy_files.WHOLE_READ_BYTES", 100)
    read = read_npy(tmp_path / "numbers.npy")
    np.testing.assert_array_equal(read, np.arange(1000))
    assert not read.flags.writeable


def test_hostile_objects_in_numpy_files_are_refused_by_name_and_not_run(tmp_path: Path) -> None:
    target = tmp_path / "was-run"
    for name, value in hostile(target).items():
        objects = np.array([1, value], dtype=object)
        np.save(tmp_path / "x.npy", objects, allow_pickle=True)
        np.savez(tmp_path / "x.npz", ok=np.ones(1), objects=objects)
        for read in (lambda: read_npy(tmp_path / "x.npy"), lambda: read_npz(tmp_path / "x.npz")):
            with pytest.raises(PickleError, match=rf"x.np[yz]: refused, for it asks for {name}; "):
                read()
        assert not target.exists()


def test_spoiled_numpy_files_are_errors_with_the_path(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5))
    whole = (tmp_path / "x.npy").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "x.npy").write_bytes(whole[:length])
        with pytest.raises(PickleError, match=r"x\.npy: not a file of NumPy arrays, or a damaged one"):
            read_npy(tmp_path / "x.npy")
    (tmp_path / "x.npz").write_bytes(whole)
    with pytest.raises(PickleError, match=r"x\.npz: not a file of NumPy arrays"):
        read_npz(tmp_path / "x.npz")
    np.save(tmp_path / "pairs.npy", np.zeros(2, dtype=[("a", "O"), ("b", "f4")]), allow_pickle=True)
    with pytest.raises(PickleError, match=r"pairs.npy: holds an array of dtype .*; save plain numbers"):
        read_npy(tmp_path / "pairs.npy")
