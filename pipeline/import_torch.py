"""Files of `torch.save`, read by torch itself, tensors and containers only."""

import pickle
import warnings
from pathlib import Path

import torch

from fsnl.cache.errors import PickleError
from fsnl.cache.torch_files import refused_global, unpacking_refused


def read_torch(path: Path) -> object:
    """What a file holds, each tensor as a NumPy array.

    Raises:
        PickleError: not such a file, a damaged one, one that asks for anything but tensors, or that is made
            to fill the memory.
    """
    if refusal := unpacking_refused(path):
        raise PickleError(path, refusal)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _plain(torch.load(path, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        name = refused_global(path, error)
        reason = f"refused, for it asks for {name}; save plain tensors" if name else "damaged"
        raise PickleError(path, reason) from error
    except (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, EOFError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise PickleError(path, f"not a file that torch.save wrote, or a damaged one: {reason}") from error


def _plain(value: object) -> object:
    if isinstance(value, torch.Tensor):
        tensor = value.detach()
        return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
