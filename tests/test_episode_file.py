"""The episode file: written and read again, held against its digests, refused for other labels."""

import shutil
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import even_labels, write_store

from fsnl.cache.arrays import I64
from fsnl.cache.episode_file import EpisodeFile, check_fits, read_episode_file, write_episode_file
from fsnl.cache.errors import FormatError, MismatchError, OccupiedError
from fsnl.cache.fingerprint import episodes_sha256, queries_sha256
from fsnl.cache.reader import open_store
from fsnl.cache.schema import Episodes
from fsnl.pipeline.episodes import sample_episodes

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
ROWS = st.integers(0, 2**63 - 1)


@st.composite
def episode_files(draw: st.DrawFn) -> EpisodeFile:
    """Arrays of any rows: the file does not judge them."""
    n_episodes, n_way, n_shot, n_query = (draw(st.integers(1, 3)) for _ in range(4))

    def array(*shape: int) -> I64:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(ROWS, min_size=size, max_size=size)), dtype=np.int64).reshape(shape)

    episodes = Episodes(
        classes=array(n_episodes, n_way),
        support=array(n_episodes, n_way, n_shot),
        query=array(n_episodes, n_way, n_query),
        seed=draw(ROWS),
        sampler=draw(WORDS),
        sampling=draw(WORDS),
    )
    return EpisodeFile(episodes=episodes, split=draw(WORDS), labels_sha256="0" * 64)


@pytest.fixture
def drawn(tiny_store: Path, tmp_path: Path) -> Path:
    """Five episodes of the tiny store."""
    features = open_store(tiny_store).features("test")
    episodes = sample_episodes(features.labels, n_way=3, n_shot=2, n_query=4, n_episodes=5, seed=1)
    path = tmp_path / "episodes.h5"
    write_episode_file(path, EpisodeFile(episodes, "test", features.labels_sha256))
    return path


@given(episode_files())
def test_what_is_written_is_read_again(content: EpisodeFile) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "episodes.h5")
        write_episode_file(path, content)
        read = read_episode_file(path)
        assert [entry.name for entry in Path(folder).iterdir()] == ["episodes.h5"]
    for name in ("classes", "support", "query"):
        array = getattr(read.episodes, name)
        np.testing.assert_array_equal(array, getattr(content.episodes, name))
        assert array.dtype == np.int64
    for name in ("seed", "sampler", "sampling", "n_way", "n_shot", "n_query", "n_episodes"):
        assert getattr(read.episodes, name) == getattr(content.episodes, name)
    assert (read.split, read.labels_sha256) == (content.split, content.labels_sha256)


def test_the_attributes_are_those_of_the_written_format(drawn: Path) -> None:
    episodes = read_episode_file(drawn).episodes
    with h5py.File(drawn) as file:
        assert set(file) == {"classes", "support", "query"}
        assert set(file.attrs) >= {
            *("format", "format_version", "created_by", "created"),
            *("n_way", "n_shot", "n_query", "n_episodes", "seed", "sampler", "sampling", "split"),
            *("labels_sha256", "queries_sha256", "episodes_sha256"),
        }
        assert [int(file.attrs[name]) for name in ("n_way", "n_shot", "n_query", "n_episodes")] == [
            3,
            2,
            4,
            5,
        ]
        assert file.attrs["queries_sha256"].decode() == queries_sha256(episodes)
        assert file.attrs["episodes_sha256"].decode() == episodes_sha256(episodes)


@pytest.mark.parametrize("name", ["classes", "support", "query"])
def test_an_edited_array_is_refused(name: str, drawn: Path) -> None:
    with h5py.File(drawn, "r+") as file:
        file[name][...] = np.roll(file[name][()], 1)
    with pytest.raises(FormatError, match=r"episodes.h5: its episodes do not fit their episodes_sha256"):
        read_episode_file(drawn)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("support", np.zeros((5, 3), np.int64), "support is not an integer array of 3 dimensions"),
        ("support", np.zeros((5, 3, 2)), "support is not an integer array of 3 dimensions"),
        ("query", np.zeros((5, 2, 4), np.int64), "damaged episodes: classes, support and query differ"),
        ("classes", None, "damaged episode file: .*classes"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    name: str, value: np.ndarray[tuple[int, ...], np.dtype[np.generic]] | None, message: str, drawn: Path
) -> None:
    with h5py.File(drawn, "r+") as file:
        del file[name]
        if value is not None:
            file[name] = value
    with pytest.raises(FormatError, match=message):
        read_episode_file(drawn)


def test_another_file_of_ours_is_told_from_it(tiny_store: Path, drawn: Path) -> None:
    with pytest.raises(FormatError, match="is a feature store, needed an episode file"):
        read_episode_file(tiny_store)
    with pytest.raises(FormatError, match="is an episode file, needed a feature store"):
        open_store(drawn)


def test_episodes_fit_every_store_of_the_same_labels_and_no_other(
    drawn: Path, tiny_store: Path, tmp_path: Path
) -> None:
    labels = even_labels(n_classes=6, n_per_class=12)
    content = read_episode_file(drawn)
    same = write_store(tmp_path / "same.h5", np.ones((72, 5)), labels, encoder="another")
    check_fits(drawn, content, open_store(same).features("test"), store=same)
    names = [f"class-{c}" for c in range(6)]
    other = write_store(tmp_path / "other.h5", np.ones((72, 8)), labels, class_names=names)
    with pytest.raises(MismatchError) as caught:
        check_fits(drawn, content, open_store(other).features("test"), store=other)
    message = str(caught.value)
    assert message.startswith(f"{drawn}: drawn from split 'test' with labels {content.labels_sha256[:8]}...")
    assert f"{other} has labels " in message
    assert "fsnl-sample" in message


def test_what_lies_at_the_path_is_kept_unless_it_may_be_replaced(drawn: Path, tmp_path: Path) -> None:
    content = read_episode_file(drawn)
    path = tmp_path / "diary.txt"
    path.write_text("a diary")
    with pytest.raises(OccupiedError, match=r"diary.txt: exists already"):
        write_episode_file(path, content)
    assert path.read_text() == "a diary"
    write_episode_file(path, content, overwrite=True)
    assert read_episode_file(path).split == "test"


def test_text_too_long_for_an_attribute_is_refused_and_leaves_nothing(drawn: Path, tmp_path: Path) -> None:
    content = read_episode_file(drawn)
    long = EpisodeFile(content.episodes, split="s" * 60_001, labels_sha256="")
    with pytest.raises(ValueError, match="attribute split has 60001 bytes, more than 60000"):
        write_episode_file(tmp_path / "long.h5", long)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["episodes.h5"]


@pytest.mark.parametrize(
    ("classes", "support", "query", "message"),
    [
        ((2, 3), (2, 3), (2, 3, 4), r"episodes need classes \(E, W\), support"),
        ((2, 3), (2, 4, 1), (2, 3, 4), r"differ in episodes or ways: \(2, 3\), \(2, 4, 1\), \(2, 3, 4\)"),
        ((2, 3), (2, 3, 1), (1, 3, 4), r"differ in episodes or ways"),
    ],
)
def test_episodes_whose_arrays_do_not_fit_each_other_cannot_be_made(
    classes: tuple[int, ...], support: tuple[int, ...], query: tuple[int, ...], message: str
) -> None:
    first, second, third = (np.zeros(shape, np.int64) for shape in (classes, support, query))
    with pytest.raises(ValueError, match=message):
        Episodes(first, second, third, seed=0, sampler="", sampling="")


def test_a_truncated_file_is_refused(drawn: Path, tmp_path: Path) -> None:
    whole = drawn.read_bytes()
    for size in range(1, len(whole), 211):
        drawn.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"truncated or damaged|not an HDF5 file"):
            read_episode_file(drawn)


def test_a_flipped_byte_anywhere_is_refused_or_changes_nothing(drawn: Path) -> None:
    whole = drawn.read_bytes()
    before = episodes_sha256(read_episode_file(drawn).episodes)
    for position in range(0, len(whole), 67):
        drawn.write_bytes(whole[:position] + bytes([whole[position] ^ 0x81]) + whole[position + 1 :])
        try:
            after = read_episode_file(drawn).episodes
        except FormatError:
            continue
        assert episodes_sha256(after) == before


def test_it_is_a_copy_that_can_be_moved(drawn: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.move(drawn, tmp_path / "elsewhere" / "é.h5")
    assert read_episode_file(moved).episodes.n_episodes == 5
