"""Array types, named by their dtype; the docstrings of functions give the shapes."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

U8: TypeAlias = npt.NDArray[np.uint8]
U64: TypeAlias = npt.NDArray[np.uint64]
Unsigned: TypeAlias = npt.NDArray[np.unsignedinteger]
I64: TypeAlias = npt.NDArray[np.int64]
F32: TypeAlias = npt.NDArray[np.float32]
F64: TypeAlias = npt.NDArray[np.float64]
# float32 or float64: arithmetic is done in the dtype that comes in.
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Bool: TypeAlias = npt.NDArray[np.bool_]
