"""README.md as a test sees it: chapters of fenced blocks, and the commands in them."""

import re
import shlex
from dataclasses import dataclass, field, replace

from checkout import CHECKOUT

RUN = {"sh", "console", "python"}
# Commands that set up the environment: whoever runs the tests has done that.
SET_UP = re.compile(
    r"""\s*(\w+=\S+\ )*              # variables for the command
    ( (\./)?bin/
    | git\ clone\ | cd\ fsnl\b | source\ | \.\ \S*activate
    | (\S*/)?pip3?\ | (\S*/)?python3?\ -m\ (pip|venv)\ )""",
    re.VERBOSE,
)
FENCE = re.compile(
    r"^(?P<ticks>```+)(?P<kind>\S*)[^\n]*\n(?P<body>.*?)\n?^(?P=ticks)[ \t]*$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a block, and what the README says it prints (None: nothing is said)."""

    text: str
    output: str | None = None

    @property
    def sets_up(self) -> bool:
        return SET_UP.match(self.text) is not None


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        kind: its info string, `sh`, `console`, `python`, or anything else, which is not run.
        body: the text between the fences.
        line: of the opening fence.
        skip: why it is not run, or None.
        slow: whether it takes more than about ten seconds.
        real_data: arguments of materialise.py that make the images it needs, or None.
    """

    kind: str
    body: str
    line: int
    skip: str | None = None
    slow: bool = False
    real_data: tuple[str, ...] | None = None

    @property
    def commands(self) -> list[Command]:
        """The shell commands; one that goes on after a backslash is one command."""
        joined = self.body.replace("\\\n", " ")
        if self.kind == "console":
            return _transcript(joined)
        if self.kind == "sh":
            return [Command(line) for line in joined.split("\n") if line.strip() and line.strip()[0] != "#"]
        return []


@dataclass(frozen=True, slots=True)
class Chapter:
    """What lies between two headings of the second level."""

    title: str
    blocks: list[Block] = field(default_factory=list)


def _transcript(body: str) -> list[Command]:
    commands = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        text, _, output = part.partition("\n")
        commands.append(Command(text.strip(), output.rstrip() if output.strip() else None))
    return commands


def _directives(before: str) -> list[str]:
    """What the comment right before a fence says."""
    before = before.rstrip()
    comment = before[before.rfind("<!--") :] if before.endswith("-->") else ""
    found = re.fullmatch(r"<!--\s*test:(.*?)-->", comment, re.DOTALL)
    return [part.strip() for part in found[1].split(";")] if found else []


def _block(text: str, fence: re.Match[str]) -> Block:
    line = text.count("\n", 0, fence.start()) + 1
    block = Block(fence["kind"], fence["body"], line)
    for directive in _directives(text[: fence.start()]):
        name, rest = re.fullmatch(r"([\w-]*)[,\s]*(.*)", directive, re.DOTALL).groups()  # type: ignore[union-attr]
        if name == "skip" and rest:
            block = replace(block, skip=rest)
        elif name == "slow" and not rest:
            block = replace(block, slow=True)
        elif name == "real-data" and rest:
            block = replace(block, real_data=tuple(shlex.split(rest)))
        else:
            msg = f"README.md:{line}: what is {directive!r} in <!-- test: ... -->?"
            raise ValueError(msg)
    return block


def chapters_of(text: str) -> list[Chapter]:
    """The chapters that hold blocks."""
    fences = list(FENCE.finditer(text))
    headings = (m.start() for m in re.finditer(r"^## ", text, re.MULTILINE))
    # A line `## ...` inside a block is a comment of the shell.
    starts = [0, *(h for h in headings if not any(f.start() < h < f.end() for f in fences))]
    chapters = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        title = text[start:end].split("\n", 1)[0].lstrip("# ")
        blocks = [_block(text, fence) for fence in fences if start <= fence.start() < end]
        if blocks:
            chapters.append(Chapter(title, blocks))
    return chapters


def readme() -> str:
    return (CHECKOUT / "README.md").read_text(encoding="utf-8")
