"""The C exchange API: a table of C functions on the type."""

from libc.stdint cimport int64_t

from dlbridge._core.abi cimport DLPackExchangeAPI
from dlbridge._core.block cimport Managed
from dlbridge._core.request cimport Request
from dlbridge._core.sources.offer cimport Offer


cdef Offer offers(object kind, object facts, str attribute)
cdef Offer offers_inherited(object kind, object facts)
cdef Managed* acquire(object obj, Offer offer, const Request* request) except? NULL
cdef const DLPackExchangeAPI* find_exchange_api(object kind) except? NULL
cdef int64_t current_stream(Managed* managed, const DLPackExchangeAPI* api) except? -2
