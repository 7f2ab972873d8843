"""torch.Tensor and its subclasses: what a tensor carries beside its memory."""

from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts, str attribute)
