"""How far a long command is, on a terminal."""

import sys
import threading
import time

import click


class Progress:
    """How far the episodes are, on a terminal and only where it takes a while; nothing elsewhere."""

    AFTER_SECONDS = 2.0
    EVERY_SECONDS = 0.2

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()
        self._done = 0
        self._began = self._drawn = time.monotonic()
        self._lock = threading.Lock()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn > self._began:
            click.echo("\r\033[K", err=True, nl=False)

    def add(self, n_episodes: int, n_all: int) -> None:
        """Count episodes done, from any thread; after all of one store and transform it starts again."""
        with self._lock:
            self._done = self._done % n_all + n_episodes
            now = time.monotonic()
            if now - self._began > self.AFTER_SECONDS and now - self._drawn > self.EVERY_SECONDS:
                self._drawn = now
                click.echo(f"\r{self._done:,} of {n_all:,} episodes", err=True, nl=False)
