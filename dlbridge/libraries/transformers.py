"""transformers: the caches that its models give beside their results."""

import copy
from typing import Any

from dlbridge.libraries.library import Arrays, Fact, Library
from dlbridge.libraries.profiles import IN_TREE


def parts_of_cache(cache: Any) -> dict[str, Any]:
    """What a cache, or a layer of one, has arrays in: tensors, lists of them or of layers, and caches."""
    return {name: value for name, value in vars(cache).items()
            if hasattr(value, "shape") or isinstance(value, (list, dict)) or is_of_caches(type(value))}


def is_of_caches(kind: type[Any]) -> bool:
    return any(base.__name__ in CACHES for base in kind.__mro__)


def cache_with(cache: Any, parts: dict[str, Any]) -> Any:
    """One that is like it, and counts and grows as it does; with other arrays."""
    made = copy.copy(cache)
    vars(made).update(parts)
    return made


CACHES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")

LIBRARY = Library(
    name="transformers",
    arrays=tuple(
        Arrays(name, {"": IN_TREE}, container=Fact((parts_of_cache, cache_with), "transformers#36311",
                                    "is no node of torch's any more", since="4.36"))
        for name in CACHES),
)
