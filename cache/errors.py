"""What can go wrong through no fault of the code: every message says which one, and what to do."""

from pathlib import Path


class FsnlError(Exception):
    """A mistake in the call, the data or a file. The commands print its text and exit with 1."""


class CacheError(FsnlError):
    """A file of ours (feature store, episode file, result file) that cannot be used.

    Args:
        path: the file; it starts the message.
        reason: what was needed, what was found, what to do.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)


class FormatError(CacheError):
    """Not one of our files, a damaged one, or one of a version that this fsnl does not read."""


class MismatchError(CacheError):
    """A whole file, but made for something else than what is asked of it now."""


class OccupiedError(CacheError):
    """Something else already lies where a file was to be written."""


class HeldError(CacheError):
    """Another run is writing the file."""


class WriteError(CacheError):
    """The file could not be written: no permission, no space, no folder."""


class PickleError(CacheError):
    """A file of pickled or NumPy arrays that is damaged, or asks for anything but arrays and containers."""


class DatasetError(FsnlError):
    """Images or class names that cannot be used."""


class EncoderError(FsnlError):
    """An encoder that cannot be built: unknown name, unknown weights, weights of another architecture."""


class EpisodeError(FsnlError, ValueError):
    """Episodes that these labels cannot give."""


class ScoringError(FsnlError, ValueError):
    """Embeddings, transforms or classifiers that cannot be scored."""
