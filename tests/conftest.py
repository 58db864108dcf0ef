"""What many tests share: the settings of Hypothesis, a home of their own for stores, two small stores."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from checkout import REAL_DATA
from hypothesis import settings
from layouts import real_images
from stores import clusters, even_labels, write_store

from fsnl.pipeline.extract import ExtractRequest, extract

# A busy machine is slow, and that is no failure. CI sees the same examples every time.
settings.register_profile("fsnl", deadline=None, max_examples=25, derandomize="CI" in os.environ)
settings.load_profile("fsnl")


@pytest.fixture(autouse=True)
def _home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees, or leaves anything in, the user's own folder of stores."""
    monkeypatch.setenv("FSNL_HOME", str(tmp_path / "fsnl-home"))


@pytest.fixture(scope="session")
def digits_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded digits by `pixels`: 1,797 rows of 192 numbers. To be read only."""
    path = tmp_path_factory.mktemp("digits") / "digits.h5"
    return extract(ExtractRequest(encoder="pixels"), out=path)


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes of twelve rows of eight numbers, in split `test`. To be read only."""
    embeddings = clusters(n_classes=6, n_per_class=12, dim=8)
    labels = even_labels(n_classes=6, n_per_class=12)
    return write_store(tmp_path_factory.mktemp("tiny") / "tiny.h5", embeddings, labels)


@pytest.fixture(scope="session")
def materialise(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`materialise("miniimagenet-folders", "--per-class", "40")`: real images in a new folder.

    Skips the test on a machine without ../shared/data.
    """

    def write(layout: str, *options: str) -> Path:
        program = REAL_DATA / "materialise.py"
        if not program.exists():
            pytest.skip(f"needs the real images in {REAL_DATA}")
        folder = tmp_path_factory.mktemp(layout)
        subprocess.run([sys.executable, program, layout, folder, *options], check=True)
        return folder

    return write


@pytest.fixture(scope="session")
def small_layout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`small_layout("cifar-fs-pickle")`: up to 20 classes a split, 6 images each. To be read only."""
    return cache(lambda layout: real_images(layout, tmp_path_factory.mktemp(layout)))
