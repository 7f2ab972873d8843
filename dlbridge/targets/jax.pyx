"""JAX arrays, through JAX's own importer."""

from libc.stdint cimport uint64_t

from dlbridge.dtypes cimport get_row, row_name, rows_named
from dlbridge.managed cimport Managed
from dlbridge.request cimport READONLY_SHARE
from dlbridge.targets cimport numpy
from dlbridge.targets.consumer cimport call_consumer
from dlbridge.targets.target cimport Target
from dlbridge.tensor cimport new_tensor

from dlbridge.dtypes import NAMES
from dlbridge.errors import ConversionError, refusal

# Types that JAX silently narrows unless jax_enable_x64 is on (jax#18385), and to what.
WIDE_DTYPES = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}

cdef uint64_t wide_rows = rows_named(WIDE_DTYPES)


cdef Target new_target():
    cdef Target target = Target.__new__(Target)
    target.name = target.library = target.install = "jax"
    target.accepts = accepts
    target.deliver = deliver
    target._load = _load
    return target


def _load(Target target):
    import jax.dlpack
    import jax.numpy
    target.rows &= rows_named(name for name in NAMES if hasattr(jax.numpy, name))    # older versions lack the newest
    target.asked_rows = wide_rows
    target.array_types = (jax.Array,)
    target.function = jax.dlpack.from_dlpack


cdef object accepts(const Managed* managed, Target target):
    # Asked each time: jax.enable_x64() is a context manager too.
    if wide_rows >> managed.row & 1 and not target.namespace.config.jax_enable_x64:
        name = row_name(managed.row)
        return refusal(ConversionError, "jax", "dtype", name, "would be narrowed silently, since jax_enable_x64 is off",
                       f'jax.config.update("jax_enable_x64", True), or pass x.astype("{WIDE_DTYPES[name]}")')
    return None


cdef object deliver(Managed* managed, Target target):
    if get_row(managed.row).subbyte:
        return target.namespace.numpy.asarray(numpy.deliver(managed, target))
    # JAX arrays are immutable, so a legacy capsule of read-only memory, which JAX asks for (jax#40789), is safe.
    return call_consumer(target, new_tensor(managed, READONLY_SHARE))
