"""Image files of every kind to RGB, and the ones that cannot be."""

import io
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from fsnl.cache.arrays import U8
from fsnl.cache.errors import DatasetError
from fsnl.pipeline.datasets import decode as module
from fsnl.pipeline.datasets.decode import decode, header_size
from fsnl.pipeline.datasets.quiet import pillow_quiet

ORIENTATION = 0x0112
LOSSLESS: dict[str, dict[str, bool]] = {
    "png": {},
    "bmp": {},
    "ppm": {},
    "tiff": {},
    "webp": {"lossless": True},
}
WHITE, RED, GREEN, BLUE = [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255]


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def saved(
    folder: Path, name: str, image: Image.Image, *, format: str | None = None, **options: object
) -> Path:
    path = folder / name
    image.save(path, format, **options)
    return path


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png(
    rows: Sequence[bytes],
    *,
    width: int,
    bits: int,
    colour: int,
    chunks: Sequence[tuple[bytes, bytes]] = (),
) -> bytes:
    """A PNG by hand: Pillow writes neither 2-bit grey nor 16-bit colour."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, len(rows), bits, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = [(b"IHDR", header), *chunks, (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, data) for name, data in parts)


def big_endian(*values: int) -> bytes:
    return struct.pack(f">{len(values)}H", *values)


def greys(*values: int) -> list[list[int]]:
    return [[value] * 3 for value in values]


GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6  # PNG colour types
COLOURS = [(b"PLTE", bytes(RED + GREEN + BLUE))]


@pytest.mark.parametrize(
    ("content", "pixels"),
    [
        # 16 bits keep the high byte: 0x1234 -> 0x12 = 18
        (png([big_endian(0, 257, 0x1234, 65535)], width=4, bits=16, colour=GREY), greys(0, 1, 18, 255)),
        (png([big_endian(65535, 256, 255)], width=1, bits=16, colour=RGB), [[255, 1, 0]]),
        (b"P5 3 1 65535\n" + big_endian(0, 0x1234, 65535), greys(0, 18, 255)),
        # 10 bits are scaled to 16 first: 512 / 1023 * 65535 = 32799 = 0x801F
        (b"P5 3 1 1023\n" + big_endian(0, 512, 1023), greys(0, 128, 255)),
        # fewer than 8 bits: 0, 1, 2, 3 -> 0, 85, 170, 255
        (png([b"\x1b"], width=4, bits=2, colour=GREY), greys(0, 85, 170, 255)),
        (b"P4 4 1\n\x50", greys(255, 0, 255, 0)),  # in a bitmap 1 is black
        (
            png([b"\0\1\2"], width=3, bits=8, colour=PALETTE, chunks=COLOURS),
            [[255, 0, 0], [0, 255, 0], [0, 0, 255]],
        ),
        # alpha over white: 0 shows white, 255 the colour, 51 = 1/5 four parts white and one part black
        (png([bytes([0, 0, 0, 255, 0, 51])], width=3, bits=8, colour=GREY_ALPHA), greys(255, 0, 204)),
        (png([bytes([9, 8, 7, 255, 9, 8, 7, 0])], width=2, bits=8, colour=RGB_ALPHA), [[9, 8, 7], WHITE]),
        (png([big_endian(0x1234, 65535, 0x1234, 0)], width=2, bits=16, colour=GREY_ALPHA), greys(18, 255)),
    ],
)
def test_each_pixel_coding_gives_the_hand_worked_rgb(
    tmp_path: Path, content: bytes, pixels: list[list[int]]
) -> None:
    path = written(tmp_path, "image", content)
    assert decode(path).tolist() == [pixels]
    assert header_size(path) == (1, len(pixels))


@pytest.mark.parametrize(
    ("bits", "colour", "row", "chunk", "pixels"),
    [
        (1, GREY, b"\x50", big_endian(0), greys(255, 255, 255, 255)),
        (1, GREY, b"\x50", big_endian(1), greys(0, 255, 0, 255)),
        (2, GREY, b"\x1b", big_endian(1), greys(0, 255, 170, 255)),
        (4, GREY, b"\x05\xaf", big_endian(5), greys(0, 255, 170, 255)),
        (8, GREY, bytes([5, 6, 7, 8]), big_endian(6), greys(5, 255, 7, 8)),
        (16, GREY, big_endian(1, 0x1234, 0x1235, 9), big_endian(0x1234), greys(0, 255, 18, 0)),
        (8, RGB, bytes([1, 2, 3] * 2 + [1, 2, 4] * 2), big_endian(1, 2, 3), [WHITE] * 2 + [[1, 2, 4]] * 2),
        (16, RGB, big_endian(*[256, 512, 768] * 4), big_endian(256, 512, 768), [WHITE] * 4),
        (8, PALETTE, b"\0\1\1\2", bytes([255, 0]), [RED, WHITE, WHITE, BLUE]),
        (8, PALETTE, b"\0\1\1\2", bytes([255, 0, 51]), [RED, WHITE, WHITE, [204, 204, 255]]),
    ],
)
def test_a_transparent_colour_shows_white(
    tmp_path: Path, bits: int, colour: int, row: bytes, chunk: bytes, pixels: list[list[int]]
) -> None:
    chunks = [*(COLOURS if colour == PALETTE else ()), (b"tRNS", chunk)]
    path = written(tmp_path, "image.png", png([row], width=4, bits=bits, colour=colour, chunks=chunks))
    assert decode(path).tolist() == [pixels]


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<i4"])
def test_tiff_of_more_bits_keeps_the_high_byte_of_sixteen(tmp_path: Path, dtype: str) -> None:
    values = np.array([[0, 255, 256], [0x1234, 32768, 65535]], dtype=dtype)
    path = saved(tmp_path, "image.tif", Image.fromarray(values))
    np.testing.assert_array_equal(decode(path)[:, :, 1], values >> 8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([[0.0, 0.5]], dtype=np.float32), "floating-point pixels"),
        (np.array([[0, 65536]], dtype=np.int32), r"32-bit pixels outside 0\.\.65535"),
        (np.array([[0, -1]], dtype=np.int32), r"32-bit pixels outside 0\.\.65535"),
    ],
)
def test_pixels_of_unknown_range_are_refused(
    tmp_path: Path, values: npt.NDArray[np.float32] | npt.NDArray[np.int32], message: str
) -> None:
    path = saved(tmp_path, "image.tif", Image.fromarray(values))
    with pytest.raises(DatasetError, match=f"image.tif: {message}.*; save as 8 or 16 bit"):
        decode(path)


@pytest.mark.parametrize(
    ("mode", "kind", "within"),
    [
        *[(mode, "tiff", 2) for mode in ("RGB", "RGBA", "CMYK", "LAB")],
        *[(mode, "jpeg", 4) for mode in ("RGB", "CMYK", "YCbCr")],
        *[("RGBA", kind, 0) for kind in ("png", "webp")],
    ],
)
def test_colour_spaces_give_the_colour_back(tmp_path: Path, mode: str, kind: str, within: int) -> None:
    image = Image.new("RGB", (8, 8), (200, 30, 60)).convert(mode)
    path = saved(tmp_path, "image", image, format=kind, **LOSSLESS.get(kind, {}))
    assert np.abs(decode(path).astype(int) - [200, 30, 60]).max() <= within


@pytest.mark.parametrize("kind", ["gif", "webp", "png", "tiff"])
def test_the_first_of_several_images_is_taken(tmp_path: Path, kind: str) -> None:
    frames = [Image.new("RGB", (4, 3), colour) for colour in ("red", "blue", "lime")]
    options = {"lossless": True} if kind == "webp" else {}
    path = saved(
        tmp_path, "image", frames[0], format=kind, save_all=True, append_images=frames[1:], **options
    )
    assert decode(path).tolist() == [[[255, 0, 0]] * 4] * 3


@settings(deadline=None)
@given(
    image=arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))),
    kind=st.sampled_from(sorted(LOSSLESS)),
)
def test_a_lossless_file_gives_its_pixels_back(
    tmp_path_factory: pytest.TempPathFactory, image: U8, kind: str
) -> None:
    path = saved(
        tmp_path_factory.mktemp("lossless"), "x", Image.fromarray(image), format=kind, **LOSSLESS[kind]
    )
    decoded = decode(path)
    np.testing.assert_array_equal(decoded, image)
    assert decoded.dtype == np.uint8
    assert decoded.flags.c_contiguous
    assert decoded.flags.writeable
    assert header_size(path) == image.shape[:2]


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff"])
def test_the_orientation_of_exif_is_applied(tmp_path: Path, kind: str) -> None:
    stored = np.zeros((8, 16, 3), np.uint8)
    stored[:4, :8], stored[:4, 8:], stored[4:, :8] = 255, 128, 64
    upright: dict[int, U8] = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.transpose(1, 0, 2),
        6: np.rot90(stored, -1),
        7: stored[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(stored),
        0: stored,  # no orientation that EXIF knows
        9: stored,
    }
    for orientation, expected in upright.items():
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        options = {"exif": exif, **LOSSLESS.get(kind, {})}
        path = saved(tmp_path, "image", Image.fromarray(stored), format=kind, **options)
        decoded = decode(path)
        np.testing.assert_allclose(decoded.astype(int), expected, atol=3, err_msg=str(orientation))
        assert header_size(path) == decoded.shape[:2]
        assert decoded.flags.c_contiguous


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0garbage", b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\xff" * 40]
)
def test_broken_exif_does_not_matter(tmp_path: Path, kind: str, exif: bytes) -> None:
    path = saved(tmp_path, "image", Image.new("RGB", (4, 3), "red"), format=kind, exif=exif)
    assert decode(path).shape == (3, 4, 3)
    assert header_size(path) == (3, 4)


def every_kind() -> dict[str, bytes]:
    """Small files of each kind, some with EXIF, animation or transparency."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    more = {"save_all": True, "append_images": [image.transpose(Image.Transpose.ROTATE_180)]}
    return {
        "jpeg": encoded(image, "JPEG", exif=exif),
        "cmyk": encoded(image.convert("CMYK"), "JPEG", progressive=True),
        "png": encoded(image, "PNG", exif=exif),
        "palette": encoded(image.quantize(8), "PNG", transparency=b"\0\xff\x80"),
        "webp": encoded(image, "WEBP", exif=exif),
        "moving webp": encoded(image, "WEBP", **more),
        "bmp": encoded(image, "BMP"),
        "gif": encoded(image.quantize(16), "GIF", transparency=3),
        "tiff": encoded(image, "TIFF", exif=exif),
        "packed tiff": encoded(image, "TIFF", compression="tiff_lzw"),
        "ppm": encoded(image, "PPM"),
    }


KINDS = every_kind()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_file_cut_short_is_refused_by_its_name(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, "owl.img", KINDS[kind][: len(KINDS[kind]) * 2 // 3])
    with pytest.raises(DatasetError, match=r"owl\.img: (damaged or cut short|not an image, or damaged)"):
        decode(path)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)))
def test_a_spoiled_file_gives_an_image_or_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: st.DataObject, kind: str
) -> None:
    monkeypatch.setattr(module, "MAX_PIXELS", 10**6)  # a spoiled size is slow to fill, no more
    content = bytearray(KINDS[kind])
    places = st.integers(0, len(content) - 1)
    for place, value in data.draw(
        st.dictionaries(places, st.integers(0, 255), min_size=1, max_size=8)
    ).items():
        content[place] = value
    path = written(tmp_path, "owl.img", bytes(content[: data.draw(st.integers(1, len(content)))]))
    try:
        image = decode(path)
    except DatasetError as error:
        assert "owl.img: " in str(error)  # noqa: PT017
    else:
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3
        assert image.size


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"empty file \(0 bytes\)"),
        (b"<!DOCTYPE html><title>404</title>", "not an image: this is an HTML page: the download failed"),
        (b"GIF", "not an image, or damaged at its start; fsnl reads JPEG, PNG"),
        (b"PK\x03\x04" + bytes(60), "not an image: this is a zip archive; unpack it first"),
        (b"\xff\xd8\xff", "not an image, or damaged at its start"),
        (b"P6 0 4 255\n", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (b"P6 20000 9000 255\n", "more than 178956970 pixels; scale the image down"),
        (b"P6 20000 8000 255\n", "damaged or cut short"),  # large enough for a warning of Pillow's
    ],
)
@pytest.mark.parametrize("read", [decode, header_size])
def test_what_is_no_image_is_said(
    tmp_path: Path, content: bytes, message: str, read: Callable[[Path], U8 | tuple[int, int]]
) -> None:
    path = written(tmp_path, "owl.jpg", content)
    if read is header_size and "cut short" in message:
        assert header_size(path) == (8000, 20000)
        return
    with pytest.raises(DatasetError, match=rf"owl\.jpg: {message}"):
        read(path)


def test_a_moving_webp_of_absurd_size_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    content = bytearray(KINDS["moving webp"])
    content[24:30] = b"\xff" * 6  # a canvas of 2**24 x 2**24
    with pytest.raises(DatasetError, match="more than 178956970 pixels"):
        header_size(written(tmp_path, "owl.webp", bytes(content)))


def test_a_path_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"owl\.jpg: cannot be read: No such file"):
        decode(tmp_path / "owl.jpg")
    with pytest.raises(DatasetError, match="cannot be read: Is a directory"):
        decode(tmp_path)


def test_threads_get_the_same_pixels_and_leave_no_filter(tmp_path: Path) -> None:
    paths = [written(tmp_path, f"{i}.img", KINDS[kind]) for i, kind in enumerate(sorted(KINDS))]
    broken = written(
        tmp_path, "broken.jpg", encoded(Image.new("RGB", (4, 3)), "JPEG", exif=b"Exif\0\0garbage")
    )
    expected = [decode(path) for path in paths]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with ThreadPoolExecutor(8) as pool:
            others = [pool.submit(decode, broken) for _ in range(100)]
            for images in pool.map(lambda _: [decode(path) for path in paths], range(20)):
                for image, alone in zip(images, expected, strict=True):
                    np.testing.assert_array_equal(image, alone)
            assert {other.result().shape for other in others} == {(3, 4, 3)}
        assert warnings.filters == before


def test_only_pillows_warnings_are_ignored_and_only_inside() -> None:
    def pillow_warns() -> None:
        exec(
            compile("import warnings; warnings.warn('odd tag')", "x", "exec"),
            {"__name__": "PIL.TiffImagePlugin"},
        )

    inside, leave = threading.Event(), threading.Event()

    def other_thread() -> None:
        with pillow_quiet():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other_thread)
    thread.start()
    inside.wait(10)
    with pillow_quiet():
        pillow_warns()
        with pytest.warns(UserWarning, match="ours"):
            warnings.warn("ours", UserWarning, stacklevel=1)
    pillow_warns()  # the other thread is still inside
    leave.set()
    thread.join()
    with pytest.warns(UserWarning, match="odd tag"):
        pillow_warns()


def test_the_first_images_of_a_process_may_be_decoded_by_many_threads(tmp_path: Path) -> None:
    path = written(tmp_path, "owl.webp", KINDS["webp"])
    code = (
        "import sys, pathlib; from concurrent.futures import ThreadPoolExecutor;"
        "from fsnl.pipeline.datasets.decode import decode;"
        "pool = ThreadPoolExecutor(16);"
        "print(len(list(pool.map(decode, [pathlib.Path(sys.argv[1])] * 64))))"
    )
    result = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("64\n", "")
