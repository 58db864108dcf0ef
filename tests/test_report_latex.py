"""The table for papers: booktabs, and text that LaTeX takes literally."""

import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import run
from results import Made, make_results, write_results

from fsnl.pipeline.report.grid import Grid, to_latex
from fsnl.pipeline.report.table import to_latex as results_to_latex

SPECIAL = r"""50% $x$ #1 a_b {c} ~ ^ \ <i> "quoted" 'single' | & ±"""


def one_cell(text: str) -> str:
    return to_latex(Grid(caption=[text], headings=["name"], rows=[[text]], numeric=[False], notes=[text]))


def test_special_characters_are_escaped() -> None:
    cell = one_cell("50% $x$ #1 a_b {c} & \\").splitlines()[8]
    assert cell.strip() == r"50\% \$x\$ \#1 a\_b \{c\} \& \textbackslash{} \\"


def test_numbers_are_aligned_right_and_rules_are_booktabs() -> None:
    text = results_to_latex([one.summary for one in make_results([Made(), Made(n_shot=5)]).runs])
    assert r"\begin{tabular}{rlrrr}" in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    assert r"shot & classifier & accuracy \% & $\pm$ episodes & $\pm$ classes \\" in text
    assert "a.h5" not in text, "a paper's reader has no use for the name of a file"
    assert r"closed 95 \% interval over the episodes" in text


def test_fsnl_score_prints_it(tiny_store: Path, tmp_path: Path) -> None:
    done = run(
        "fsnl-score", tiny_store, "--query", "5", "--episodes", "50", "--format", "latex", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert r"\begin{tabular}{rlrrr}" in done.stdout


def test_latex_takes_it(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex")
    results = write_results(tmp_path / "r.h5", [Made(encoder=SPECIAL), Made(classifier="attention")])
    compared = run("fsnl-compare", results, "--format", "latex", cwd=tmp_path)
    document = [r"\documentclass{article}", r"\usepackage{booktabs,textcomp}", r"\begin{document}"]
    text = "\n".join([*document, one_cell(SPECIAL), compared.stdout, r"\end{document}"])
    (tmp_path / "t.tex").write_text(text)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
