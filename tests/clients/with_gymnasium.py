"""Gymnasium's wrappers with dlbridge in place of what converts an array."""

import gymnasium.wrappers.array_conversion as array_conversion
from client import converted, replace_everywhere

import dlbridge

own = array_conversion._array_api_array_conversion
# JAX has no type for NumPy's default float64 and int64.
NARROW = {"narrow": True}


def convert(value, xp, device=None):
    return converted(
        "gymnasium", lambda: dlbridge.convert(value, xp, device=device, **NARROW),
        lambda: own(value, xp, device), value, xp,
    )


replace_everywhere("gymnasium", own, convert)
