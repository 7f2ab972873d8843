"""scikit-learn with dlbridge in place of ``move_to`` and ``_convert_to_numpy``."""

import scipy.sparse
import sklearn.utils._array_api as array_api
from client import converted, replace_everywhere

import dlbridge

own_move_to, own_convert_to_numpy = array_api.move_to, array_api._convert_to_numpy


def move_to(*arrays, xp, device):
    if any(scipy.sparse.issparse(array) for array in arrays):       # they pass through, or are refused, whole
        return own_move_to(*arrays, xp=xp, device=device)
    moved = tuple(moved_one(array, xp, device) for array in arrays)
    return moved[0] if len(moved) == 1 else moved


def moved_one(array, xp, device):
    if array is None or array_api.get_namespace_and_device(array)[::2] == (xp, device):
        return array
    return converted(
        "scikit-learn", lambda: dlbridge.convert(array, xp, device=device),
        lambda: own_move_to(array, xp=xp, device=device), array, xp, device,
    )


def convert_to_numpy(array, xp):
    if not hasattr(array, "__dlpack__"):        # lists
        return own_convert_to_numpy(array, xp)
    return converted(
        "scikit-learn", lambda: dlbridge.convert(array, "numpy", device="cpu"),
        lambda: own_convert_to_numpy(array, xp), array,
    )


replace_everywhere("sklearn", own_move_to, move_to)
replace_everywhere("sklearn", own_convert_to_numpy, convert_to_numpy)
