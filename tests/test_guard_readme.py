"""What README.md says is run, so that it stays true.

For its author:

* A chapter is what lies between two `## ` headings. Its blocks run in order in one new folder, with
  `$FSNL_HOME` in it and the commands on the path; a later block may use the files of an earlier one.
  Chapters do not see each other's files.
* ```` ```sh ```` holds a script for bash that has to succeed; ```` ```python ```` a program, run by itself.
* ```` ```console ```` holds commands after `$ ` and what they print, each run by itself. What follows a
  command is compared with its standard output (`...` stands for anything, amounts of blank space do not
  matter); a command with nothing after it only has to succeed. Progress and notes go to standard error and
  are not compared.
* Blocks of any other kind (`text`, `json`, none), and indented ones, are not run.
* Lines that set up the environment are not run: `bin/...`, `pip ...`, `git clone ...`, `cd fsnl`, and the
  like. The prefix `.venv/bin/` of a command is taken off.
* A comment right before a block changes how it is run; several are joined by `;`:

      <!-- test: skip, and say why -->
      <!-- test: slow -->                   the chapter is marked slow (over ten seconds)
      <!-- test: real-data LAYOUT FOLDER [--classes N] [--per-class M] -->

  The last writes real images into FOLDER of the chapter's folder, by ../shared/data/materialise.py; on a
  machine without ../shared/data the rest of the chapter is skipped.

In all blocks, indented ones too, and in `code` within the text, a command has to exist and to have the
options named, and every `bin/...` named anywhere has to exist, whether it is run or not.
"""

import doctest
import os
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from checkout import CHECKOUT, REAL_DATA, console_scripts, run
from readme import FENCE, RUN, Block, Chapter, Command, chapters_of, readme

CHAPTERS = chapters_of(readme())


def is_run(block: Block) -> bool:
    return block.kind in RUN and block.skip is None


def runnable() -> list[ParameterSet]:
    chapters = [chapter for chapter in CHAPTERS if any(is_run(block) for block in chapter.blocks)]
    slow = [any(block.slow for block in chapter.blocks) for chapter in chapters]
    return [
        pytest.param(chapter, id=chapter.title, marks=[pytest.mark.slow] * is_slow)
        for chapter, is_slow in zip(chapters, slow, strict=True)
    ]


def same_output(expected: str, printed: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    expected, printed = (without_seconds(text.rstrip()) + "\n" for text in (expected, printed))
    return doctest.OutputChecker().check_output(expected, printed, flags)


def without_seconds(text: str) -> str:
    """The last column of tables in which it is called so is left out: no two runs take the same time."""
    lines, inside = [], False
    for line in text.split("\n"):
        inside = line.endswith(" seconds") or (inside and bool(line.strip()))
        lines.append(re.sub(r" +\d+\.\d\d$", "", line) if inside else line)
    return "\n".join(lines)


def run_program(*program: str | Path, where: str, folder: Path) -> str:
    done = run(*program, cwd=folder, FSNL_HOME=str(folder / "home"))
    assert done.returncode == 0, f"{where}: {program[-1]}\n{done.stderr}"
    return done.stdout


def run_block(block: Block, *, folder: Path) -> None:
    where = f"README.md:{block.line}"
    if block.real_data is not None:
        if not (REAL_DATA / "materialise.py").exists():
            pytest.skip(f"{where}: needs the real images in {REAL_DATA}")
        program = str(REAL_DATA / "materialise.py")
        run_program(sys.executable, program, *block.real_data, where=where, folder=folder)
    if block.kind == "python":
        run_program(sys.executable, "-c", block.body, where=where, folder=folder)
    commands = [
        Command(re.sub(r"(?<!\S)(\./)?\.venv/bin/", "", command.text), command.output)
        for command in block.commands
        if not command.sets_up
    ]
    if block.kind == "sh":
        commands = [Command("\n".join(command.text for command in commands))]
    for command in commands:
        printed = run_program("bash", "-euo", "pipefail", "-c", command.text, where=where, folder=folder)
        if command.output is not None:
            assert same_output(command.output, printed), f"{where}: {command.text}\nprinted\n{printed}"


def test_of_a_table_all_but_the_seconds_must_be_as_it_was() -> None:
    table = "a\n\nshot  accuracy %  seconds\n   1       25.13     0.99\n   5       28.43     9.92\n\n0.50"
    assert same_output(table, table.replace("9.92", "19.31"))
    assert not same_output(table, table.replace("28.43", "28.44"))
    assert not same_output(table, table.replace("0.50", "0.51"))


@pytest.mark.parametrize("chapter", runnable())
def test_the_commands_of_the_readme_work(chapter: Chapter, tmp_path: Path) -> None:
    for block in chapter.blocks:
        if is_run(block):
            run_block(block, folder=tmp_path)


@cache
def options_of(command: str) -> frozenset[str]:
    done = run(command, "--help", cwd=Path.cwd())
    return frozenset(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", done.stdout))


def command_lines() -> list[tuple[str, str]]:
    """Where, and what: every shell command in a block or indented, every piece of `code` in the text."""
    lines = [
        (f"README.md:{block.line}", command.text)
        for chapter in CHAPTERS
        for block in chapter.blocks
        for command in block.commands
    ]
    text = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), readme())
    for match in re.finditer(r"`([^`]+)`|^ {4,}(?:\$ )?((?:[^\n]*\\\n)*[^\n]+)$", text, re.MULTILINE):
        line = text.count("\n", 0, match.start()) + 1
        lines.append((f"README.md:{line}", match[1] or match[2].replace("\\\n", " ")))
    return lines


def mistakes_in(line: str) -> list[str]:
    """Commands that do not exist, and options that a command (or, for an option alone, any) does not have."""
    found = []
    for part in re.split(r"[|;&]+|\$\(", line):
        words = [word.strip(")\"'") for word in part.split() if not re.match(r"\w+=", word)]
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        command = Path(words[0]).name if words else ""
        if re.fullmatch(r"fsnl-[a-z]+", command) and command not in console_scripts():
            found.append(f"there is no {command}")
        elif command in console_scripts():
            found += [f"{command} has no {option}" for option in sorted(options - options_of(command))]
        elif command.startswith("--"):
            of_all = frozenset().union(*map(options_of, console_scripts()))
            found += [f"no command has {option}" for option in sorted(options - of_all)]
    return found


def test_every_command_and_option_in_the_readme_exists() -> None:
    assert not [f"{where}: {wrong}" for where, line in command_lines() for wrong in mistakes_in(line)]


def test_every_script_in_the_readme_exists() -> None:
    named = set(re.findall(r"(?<![\w./-])(?:\./|fsnl/)?(bin/[\w-]+)", readme()))
    assert not [script for script in sorted(named) if not os.access(CHECKOUT / script, os.X_OK)]


EXAMPLE = """\
# Title

```sh
bin/quickstart
echo one >made   # a comment
# another
printf '%s %s\\n' two \\
    three >>made
```

## Second

<!-- test: slow; real-data miniimagenet-folders images --per-class 40 -->

```console
$ cat made
one
two   ...
$ true
```

<!-- test: skip, it takes a day -->
```python
1 / 0
```

```json
{}
```
"""


def test_this_guard_reads_chapters_blocks_and_directives() -> None:
    first, second = chapters_of(EXAMPLE)
    assert (first.title, second.title) == ("Title", "Second")
    assert [b.kind for b in second.blocks] == ["console", "python", "json"]
    assert [c.sets_up for c in first.blocks[0].commands] == [True, False, False]
    assert first.blocks[0].commands[2].text.split()[3:] == ["two", "three", ">>made"]
    console, python, _ = second.blocks
    assert console.slow
    assert console.real_data == ("miniimagenet-folders", "images", "--per-class", "40")
    assert console.commands == [Command("cat made", "one\ntwo   ..."), Command("true", None)]
    assert python.skip == "it takes a day"
    assert python.line == 23


def test_this_guard_refuses_a_directive_that_it_does_not_know() -> None:
    with pytest.raises(ValueError, match=r"README.md:2: what is 'skipp'"):
        chapters_of("<!-- test: skipp -->\n```sh\ntrue\n```\n")


def test_this_guard_sees_commands_and_options_that_do_not_exist() -> None:
    assert mistakes_in("fsnl-nothing --shot 1 | fsnl-score a.h5 --shot 1 --shoot 2") == [
        "there is no fsnl-nothing",
        "fsnl-score has no --shoot",
    ]
    assert mistakes_in("--shoot") == ["no command has --shoot"]
    for right in ("--shot", "pip install --upgrade pip", "X=1 fsnl-score -h", "$(fsnl-extract)"):
        assert mistakes_in(right) == []


def test_this_guard_runs_blocks_and_compares_what_they_print(tmp_path: Path) -> None:
    first, second = chapters_of(EXAMPLE)
    run_block(first.blocks[0], folder=tmp_path)
    transcript = Block("console", second.blocks[0].body, 1)
    run_block(transcript, folder=tmp_path)
    with pytest.raises(AssertionError, match="printed"):
        run_block(Block("console", "$ cat made\none\nthree", 7), folder=tmp_path)
    with pytest.raises(AssertionError, match=r"README.md:7: true\n  false"):
        run_block(Block("sh", "true\nfalse", 7), folder=tmp_path)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_block(Block("python", "1 / 0", 7), folder=tmp_path)
