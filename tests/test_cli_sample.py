"""fsnl-sample as a user calls it."""

from pathlib import Path

import numpy as np
import pytest
from commands import done, fsnl_process
from stores import even_labels, write_store

from fsnl.cache.episode_file import read_episode_file
from fsnl.cache.fingerprint import episodes_sha256
from fsnl.cache.reader import open_store
from fsnl.pipeline.episodes import sample_episodes

OPTIONS = ("--way", "3", "--shot", "2", "--query", "4", "--episodes", "50", "--seed", "8")


def test_it_writes_what_python_draws(tiny_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "episodes.h5"
    outcome = fsnl_process("sample", tiny_store, *OPTIONS, "--out", out, cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (0, f"{out}\n")
    features = open_store(tiny_store).features("test")
    drawn = sample_episodes(features.labels, n_way=3, n_shot=2, n_query=4, n_episodes=50, seed=8)
    content = read_episode_file(out)
    for name in ("classes", "support", "query"):
        np.testing.assert_array_equal(getattr(content.episodes, name), getattr(drawn, name))
    assert (content.split, content.labels_sha256) == ("test", features.labels_sha256)
    assert episodes_sha256(drawn) in outcome.stderr


def test_by_default_it_draws_what_the_paper_does(digits_store: Path, tmp_path: Path) -> None:
    done("sample", digits_store, "--out", tmp_path / "e.h5")
    drawn = read_episode_file(tmp_path / "e.h5").episodes
    shape = (drawn.n_way, drawn.n_shot, drawn.n_query, drawn.n_episodes, drawn.seed)
    assert shape == (5, 1, 15, 10_000, 0)


def test_drawn_twice_the_files_hold_the_same(tiny_store: Path, tmp_path: Path) -> None:
    digests = set()
    for name in ("a.h5", "b.h5"):
        done("sample", tiny_store, *OPTIONS, "--out", tmp_path / name)
        digests.add(episodes_sha256(read_episode_file(tmp_path / name).episodes))
    assert len(digests) == 1


def test_the_encoder_of_the_store_does_not_matter(tiny_store: Path, tmp_path: Path) -> None:
    labels = even_labels(n_classes=6, n_per_class=12)
    other = write_store(tmp_path / "other.h5", np.ones((72, 3)), labels, encoder="others")
    digests = set()
    for store in (tiny_store, other):
        done("sample", store, *OPTIONS, "--out", tmp_path / "e.h5", "--force")
        digests.add(episodes_sha256(read_episode_file(tmp_path / "e.h5").episodes))
    assert len(digests) == 1


def test_another_split_of_the_store_can_be_drawn_from(tmp_path: Path) -> None:
    store = write_store(
        tmp_path / "s.h5", np.ones((40, 2)), even_labels(n_classes=4, n_per_class=10), split="val"
    )
    done("sample", store, *OPTIONS, "--split", "val", "--out", tmp_path / "e.h5")
    assert read_episode_file(tmp_path / "e.h5").split == "val"


@pytest.mark.parametrize("before", ["a diary", ""])
def test_force_replaces_what_lies_there(before: str, tiny_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.h5"
    out.write_text(before)
    done("sample", tiny_store, *OPTIONS, "--out", out, "--force")
    assert read_episode_file(out).episodes.n_episodes == 50
