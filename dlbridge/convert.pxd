"""The bridge: acquire, place, deliver."""

from dlbridge._core.block cimport Managed


# Makes an array of a library of a block; managed is stolen, also when this fails. ``to`` is as for convert();
# ``otherwise`` is the target where it is an example that no library makes, such as bytes.
cdef object deliver_to(Managed* managed, object to, str otherwise)
# convert(src, to) in a tree: what is in several places is copied once. The memo has each copy, after its source, by the
# source's id.
cdef object convert_once(object src, object to, dict memo)
