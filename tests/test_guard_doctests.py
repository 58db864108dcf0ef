"""The examples in docstrings are run."""

import doctest
import importlib
from pathlib import Path

import pytest
from checkout import module_files

WITH_EXAMPLES = [name for name, file in module_files().items() if ">>> " in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_in_docstrings_are_true(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FSNL_HOME", str(tmp_path / "home"))
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
