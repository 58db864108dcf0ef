"""Published weights as files: downloaded once by the library's own means, and held against their digest."""

import logging
import re
import sys
from pathlib import Path
from urllib.parse import urlparse

import torch

from fsnl.cache.errors import EncoderError
from fsnl.pipeline.encoders.network import first_line
from fsnl.pipeline.encoders.weights import digest_in_name, file_sha256, is_as_named

_SHA256 = re.compile(r"[0-9a-f]{64}")


def torch_hub_file(url: str, *, encoder: str) -> tuple[Path, str]:
    """A file of torch's own hub, in torch's own cache folder (`$TORCH_HOME`).

    Args:
        url: its name ends in the first digits of its digest, as in `resnet50-11ad3fa6.pth`.
        encoder: whose weights they are, for errors.

    Returns:
        The file and its SHA-256.

    Raises:
        EncoderError: it cannot be had, or is not what its name says.
    """
    name = Path(urlparse(url).path).name
    path = Path(torch.hub.get_dir()) / "checkpoints" / name
    if not path.is_file():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(path), digest_in_name(name), progress=sys.stderr.isatty())
        except (OSError, RuntimeError, ValueError) as error:
            raise _failed(url, encoder=encoder, error=error, advice=f"or put it at {path}") from error
    digest = file_sha256(path)
    if not is_as_named(path, sha256=digest):
        message = f"{path}: its digest is {digest[:8]}..., its name says another; delete it and try again"
        raise EncoderError(message)
    return path, digest


def hugging_face_file(repository: str, file_name: str, *, encoder: str) -> tuple[Path, str]:
    """A file of the Hugging Face hub, in that library's own cache folder (`$HF_HOME`).

    Returns:
        The file and its SHA-256, which the cache has as the name of its copy.

    Raises:
        EncoderError: it cannot be had, or is not what the hub said.
    """
    import huggingface_hub
    from huggingface_hub.utils import logging as hub_logging

    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)  # of each of its tries it would say why that failed
    name, _, revision = repository.partition("@")
    try:
        found = huggingface_hub.hf_hub_download(name, file_name, revision=revision or None)
    except Exception as error:
        # whatever the client of the day raises: no network, no such file, not allowed
        where = f"{repository}/{file_name}"
        raise _failed(where, encoder=encoder, error=error, advice="or fill $HF_HOME elsewhere") from error
    finally:
        hub_logging.set_verbosity(verbosity)
    path = Path(found)
    digest = file_sha256(path)
    stored = path.resolve().name
    if _SHA256.fullmatch(stored) and stored != digest:
        message = (
            f"{path}: its digest is {digest[:8]}..., the hub says {stored[:8]}...; delete it and try again"
        )
        raise EncoderError(message)
    return path, digest


def _failed(what: str, *, encoder: str, error: Exception, advice: str) -> EncoderError:
    reason = first_line(error)
    return EncoderError(
        f"published weights of {encoder}: cannot download {what}: {reason}; "
        f"fetch the file where there is a network and give its path with --weights, {advice}"
    )
