"""Producers of DLPack that lend the memory of another; they import no library."""


class LegacyProducer:
    """``__dlpack__`` as it was before DLPack 1.0."""

    def __init__(self, base):
        self.base = base

    def __dlpack__(self, stream=None):
        return self.base.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.base.__dlpack_device__()


class VersionedProducer:
    """``__dlpack__`` with all four keywords, and nothing else."""

    def __init__(self, base):
        self.base = base

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.base.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self):
        return self.base.__dlpack_device__()
