"""An image file -> RGB pixels, or its size: whatever kind of image it is, or an error that names it.

What becomes of images that are not 8-bit RGB:

* Transparency (an alpha channel, a transparent palette entry or colour) is composited over white.
* Sixteen bits keep their high byte, as libpng does: 65535 becomes 255, 257 becomes 1.
* CMYK, YCbCr, grey, palette and 1-bit go through Pillow's own conversion; an embedded colour profile is
  not applied.
* Floating-point pixels are refused: nothing in the file says which values are black and white.
* Of an animation or a document of several pages the first image is taken.
* The orientation that EXIF states is applied; EXIF that cannot be read counts as none.
"""

import io
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, TiffImagePlugin, UnidentifiedImageError

from fsnl.cache.arrays import U8
from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets.guess import kind_of_file
from fsnl.pipeline.datasets.names import printable
from fsnl.pipeline.datasets.quiet import pillow_quiet

# File kinds and the extensions they go by. No kind that Pillow hands to another program (EPS).
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
EXTENSIONS = frozenset(".jpg .jpeg .jpe .jfif .png .webp .bmp .gif .tif .tiff .ppm .pgm .pbm .pnm".split())

# Twice Pillow's own threshold for a warning, which is where Pillow itself refuses: 537 MB of RGB.
MAX_PIXELS = 2 * 89_478_485

# Bytes: a file of more is read bit by bit; and so many of its first tell the size of a WebP.
_LARGE_FILE = 1 << 24
_START = 32

# What the readers of one Pillow or another raise on spoiled files.
_SPOILED = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    ArithmeticError,
    AttributeError,
    LookupError,
    EOFError,
    MemoryError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)

_ORIENTATION = 0x0112
# Where a JPEG may state it: most have none of these, and Pillow takes its time to find that out.
_SAYS_ORIENTATION = frozenset(("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif"))
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(path: Path | str) -> U8:
    """Pixels of an image file, upright. Safe to call from several threads at once.

    Args:
        path: the file; its kind is told by its content, not by its extension.

    Returns:
        (H, W, 3) uint8 RGB, C-contiguous, writable.

    Raises:
        DatasetError: the file is missing, unreadable, empty, no image, cut short, or too large.
    """
    try:
        with io.FileIO(path) as raw, pillow_quiet():
            image = _opened(raw, path)
            _mend_transparency(image)
            image.load()
            eight_bit = _eight_bit(image, path)
            # Pillow turns a TIFF upright while it loads it, and no other kind.
            turn = None if image.format == "TIFF" else _UPRIGHT.get(_orientation(image))
            rgb = _over_white(eight_bit)
            return np.array(rgb if turn is None else rgb.transpose(turn))
    except _SPOILED as error:
        raise _refusal(path, error) from error


def header_size(path: Path | str) -> tuple[int, int]:
    """Height and width that `decode` would give, by the file's header: no pixel is decoded.

    Args:
        path: the file.

    Returns:
        (height, width).

    Raises:
        DatasetError: as `decode`, but a file that is cut short goes unnoticed.
    """
    try:
        with io.FileIO(path) as raw, pillow_quiet():
            image = _opened(raw, path)
            # Some Pillows give the size of a TIFF upright, some as it is stored: ask its tags.
            tags = image.tag_v2 if isinstance(image, TiffImagePlugin.TiffImageFile) else None
            width, height = (tags[256], tags[257]) if tags else image.size
            turned = width != height and _orientation(image) in (5, 6, 7, 8)
            return (width, height) if turned else (height, width)
    except _SPOILED as error:
        raise _refusal(path, error) from error


def _opened(raw: io.FileIO, path: Path | str) -> Image.Image:
    """The image of a file, header read; nothing here closes it, `raw` is the caller's."""
    file, start = _in_memory(raw)
    if not start:
        msg = f"{printable(path)}: empty file (0 bytes)"
        raise DatasetError(msg)
    if _webp_canvas(start) > MAX_PIXELS:
        raise Image.DecompressionBombError
    image = Image.open(file, formats=FORMATS)
    if image.width * image.height > MAX_PIXELS:
        raise Image.DecompressionBombError
    return image


def _refusal(path: Path | str, error: Exception) -> DatasetError:
    """What to say of a file on which Pillow or the operating system raised something."""
    where = printable(path)
    if isinstance(error, UnidentifiedImageError):
        kind = kind_of_file(Path(path))
        if kind is not None and not kind.endswith("image"):
            return DatasetError(f"{where}: not an image: this is {kind}")
        kinds = ", ".join(FORMATS)
        return DatasetError(f"{where}: not an image, or damaged at its start; fsnl reads {kinds}")
    if isinstance(error, Image.DecompressionBombError):
        return DatasetError(f"{where}: more than {MAX_PIXELS} pixels; scale the image down")
    if isinstance(error, OSError) and error.errno is not None:  # of the operating system
        return DatasetError(f"{where}: cannot be read: {error.strerror}")
    return DatasetError(f"{where}: damaged or cut short: {str(error) or type(error).__name__}")


def _in_memory(raw: io.FileIO) -> tuple[BinaryIO, bytes]:
    """The file, in memory where it is not large: Pillow reads headers in many small bits. And its start."""
    if os.fstat(raw.fileno()).st_size > _LARGE_FILE:
        buffered = io.BufferedReader(raw)
        return buffered, buffered.peek(_START)[:_START]
    content = raw.readall()
    return io.BytesIO(content), content[:_START]


def _webp_canvas(start: bytes) -> int:
    """Pixels of an extended WebP, 0 of any other file: Pillow allocates them before it tells the size."""
    if start[:4] != b"RIFF" or start[8:16] != b"WEBPVP8X":
        return 0
    return (int.from_bytes(start[24:27], "little") + 1) * (int.from_bytes(start[27:30], "little") + 1)


def _orientation(image: Image.Image) -> int:
    """EXIF orientation, 1 to 8; 1 where there is none, or none that can be read."""
    if image.format == "JPEG" and not _SAYS_ORIENTATION.intersection(image.info):
        return 1
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except _SPOILED:
        return 1


def _mend_transparency(image: Image.Image) -> None:
    """Bring the transparent colour of a PNG to the eight bits that its pixels get.

    Pillow 13 and before scale pixels of 2, 4 and 3 x 16 bits, and leave that colour as in the file.
    """
    colour = image.info.get("transparency")
    if image.format != "PNG" or colour is None or not (tiles := getattr(image, "tile", ())):
        return
    coding = tiles[0][3]
    if isinstance(colour, int) and coding in ("L;2", "L;4"):
        image.info["transparency"] = colour * (85 if coding == "L;2" else 17)
    elif isinstance(colour, tuple) and coding == "RGB;16B":
        image.info["transparency"] = tuple(channel >> 8 for channel in colour)


def _eight_bit(image: Image.Image, path: Path | str) -> Image.Image:
    """The image itself, or in 8 bits where each pixel is one number of more."""
    if image.mode == "F":
        msg = f"{printable(path)}: floating-point pixels of unknown range; save as 8 or 16 bit"
        raise DatasetError(msg)
    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    values = np.asarray(image)  # (H, W) of some integer type
    if values.size and (values.min() < 0 or values.max() > 65535):
        msg = f"{printable(path)}: 32-bit pixels outside 0..65535; save as 8 or 16 bit"
        raise DatasetError(msg)
    grey = (values >> 8).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[values == transparent] = 255
    return Image.fromarray(grey)


def _over_white(image: Image.Image) -> Image.Image:
    """RGB of an image of 8-bit channels; transparency shows white."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    has_alpha = image.mode in ("LA", "La", "PA", "RGBA", "RGBa")
    if not has_alpha and "transparency" not in image.info:
        return image.convert("RGB")
    rgba = image.convert("LA").convert("RGBA") if image.mode == "La" else image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(rgba)
    return white.convert("RGB")
