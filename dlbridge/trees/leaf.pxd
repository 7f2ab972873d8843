"""What an object is in a batch."""


cdef enum Role:
    IN_INSTANCE             # of a type without a protocol, whose instances may have one
    IN_REFERENT             # of weak proxies: the role is that of their referent
    ROLE_OTHER
    ROLE_VALUE
    ROLE_ARRAY
    ROLE_TABLE


cpdef Role role_of(object obj) except *
