"""The C exchange API: a table of C functions on the type (torch, cuda.core, dlbridge's own Tensor)."""

from dlbridge._core.abi cimport DLPackExchangeAPI
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind)
cdef const DLPackExchangeAPI* find_exchange_api(object kind) except? NULL
