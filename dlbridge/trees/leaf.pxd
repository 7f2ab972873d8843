"""What an object is in a batch."""


cdef enum Role:
    IN_INSTANCE             # of a type without a protocol, whose instances may have one
    IN_REFERENT             # of weak proxies: the role is that of their referent
    ROLE_OTHER
    ROLE_VALUE
    ROLE_ARRAY
    ROLE_TABLE
    ROLE_FORM               # several arrays that are one, as a sparse matrix is


cpdef Role role_of(object obj) except *
