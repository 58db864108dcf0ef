"""What a file is that is not what was expected, by its first bytes: for messages only."""

from pathlib import Path

N_BYTES = 512

_STARTS = (
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\x1f\x8b", "compressed with gzip; unpack it first"),
    (b"BZh", "compressed with bzip2; unpack it first"),
    (b"\xfd7zXZ\x00", "compressed with xz; unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (b"Rar!", "a rar archive; unpack it first"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; run git lfs pull"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG", "a PNG image"),
    (b"%PDF", "a PDF document"),
)


def kind_of(start: bytes) -> str | None:
    """In words, what the first bytes of a file say that it is; None where they say nothing.

    >>> kind_of(b"  <!DOCTYPE html><html>")
    'an HTML page: the download failed; download it again'
    """
    if not start:
        return "empty (0 bytes); download it again"
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        return "an HTML page: the download failed; download it again"
    if start[257:262] == b"ustar":
        return "a tar archive; unpack it first"
    return next((kind for magic, kind in _STARTS if start.startswith(magic)), None)


def kind_of_file(path: Path) -> str | None:
    """`kind_of` of a file on the disk; None also where it cannot be read."""
    try:
        with path.open("rb") as file:
            return kind_of(file.read(N_BYTES))
    except OSError:
        return None
