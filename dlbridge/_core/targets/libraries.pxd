"""Libraries that take arrays through a function of their own."""


cdef list new_targets()
