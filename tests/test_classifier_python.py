"""Classifiers of the user's own code."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from stores import clusters, even_labels, in_memory

from fsnl.cache.errors import ScoringError
from fsnl.pipeline.cli.score import main
from fsnl.pipeline.episodes import sample_episodes
from fsnl.pipeline.score import score
from fsnl.pipeline.user_classifier import user_classifier

PROTOTYPE = """
import numpy as np

def scores(support, query):
    means = support.mean(axis=2)
    return -((query[:, :, None] - means[:, None]) ** 2).sum(axis=-1)
"""
LABELS = even_labels(n_classes=6, n_per_class=12)
EPISODES = sample_episodes(LABELS, n_way=3, n_shot=2, n_query=4, n_episodes=50, seed=0)


def written(folder: Path, code: str) -> str:
    (folder / "mine.py").write_text(code, encoding="utf-8")
    return f"python:{folder / 'mine.py'}:scores"


def test_a_function_of_ones_own_answers_as_the_built_in_does(tmp_path: Path) -> None:
    embeddings = clusters(n_classes=6, n_per_class=12, dim=8)
    names = [written(tmp_path, PROTOTYPE), "prototype"]
    own, built_in = score(*in_memory(embeddings, LABELS), [EPISODES], classifiers=names)
    assert own.summary.classifier == names[0]
    assert (own.predictions == built_in.predictions).all()


def test_it_runs_from_the_command(tmp_path: Path, tiny_store: Path) -> None:
    name = written(tmp_path, PROTOTYPE)
    result = CliRunner().invoke(
        main, [str(tiny_store), "--query", "5", "--classifier", name, "--format", "csv"]
    )
    assert result.exit_code == 0
    assert result.output.count(name) == 2


def test_it_gets_extreme_embeddings_as_they_are(tmp_path: Path) -> None:
    embeddings = clusters(n_classes=6, n_per_class=12, dim=8) * np.float32(1e18)
    code = "def scores(support, query):\n    assert abs(support).max() > 1e18 < abs(query).max()\n"
    name = written(tmp_path, code + "    return query[:, :, :1] @ support[:, :, 0, :1].swapaxes(1, 2)\n")
    assert score(*in_memory(embeddings, LABELS), [EPISODES], classifiers=[name])


def test_its_folder_is_on_the_path_while_it_is_loaded_and_no_longer(tmp_path: Path) -> None:
    (tmp_path / "beside_mine.py").write_text("factor = -1.0\n", encoding="utf-8")
    before = list(sys.path)
    user_classifier(written(tmp_path, "import beside_mine\n" + PROTOTYPE))
    assert sys.path == before


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def other():\n    pass\n", "has no function 'scores'"),
        ("scores = 3\n", "has no function 'scores'"),
        ("def scores(:\n", r"raised SyntaxError: .*line 1"),
        ("import nowhere\n", r"raised ModuleNotFoundError: No module named 'nowhere' \(.*mine.py, line 1\)"),
        ("\ndef scores(support, query):\n    return 1 / 0\n", r"ZeroDivisionError: division.*line 3\)"),
        ("def scores(support, query):\n    return query\n", r"returned float32 \(\d+, 12, 8\), needed real"),
        ("def scores(support, query):\n    return 'a'\n", "needed real numbers"),
        ("def scores(support, query):\n    return [[1], [1, 2]]\n", "raised ValueError: setting an array"),
        ("def scores(support, query):\n    raise SystemExit(3)\n", r"SystemExit: 3 \(.*mine.py, line 2\)"),
        ("raise SystemExit(0)\n", r"raised SystemExit: 0 \(.*mine.py, line 1\)"),
        (
            "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\n"
            "def scores(support, query):\n    raise Odd\n",
            r"raised Odd \(.*mine.py, line 5\)",
        ),
        ("def scores(support, query):\n    query += 1\n", "read-only"),
        (
            "import numpy as np\ndef scores(support, query):\n"
            "    return np.full((*query.shape[:2], support.shape[1]), np.nan)\n",
            "returned NaN",
        ),
    ],
)
def test_mistakes_in_it_are_told_with_their_place(tmp_path: Path, code: str, reason: str) -> None:
    embeddings = clusters(n_classes=6, n_per_class=12, dim=8)
    with pytest.raises(ScoringError, match=reason):
        score(*in_memory(embeddings, LABELS), [EPISODES], classifiers=[written(tmp_path, code)])


def test_a_relative_file_has_its_place_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("def scores(support, query):\n    return 1 / 0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    embeddings = clusters(n_classes=6, n_per_class=12, dim=8)
    with pytest.raises(ScoringError, match=r"ZeroDivisionError: .* \(mine.py, line 2\)"):
        score(*in_memory(embeddings, LABELS), [EPISODES], classifiers=["python:mine.py:scores"])


@pytest.mark.parametrize("name", ["python:", "python:mine.py", "python:mine.py:", "python::scores"])
def test_an_incomplete_name_is_refused_with_the_form(name: str) -> None:
    with pytest.raises(ScoringError, match="needed python:FILE:FUNCTION, as in"):
        user_classifier(name)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ScoringError, match=re.escape("there is no file nowhere/mine.py")):
        user_classifier("python:nowhere/mine.py:scores")
