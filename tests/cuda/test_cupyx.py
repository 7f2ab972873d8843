"""CuPy's sparse arrays with parts of a fake device. Their constructors ask the CUDA runtime, so none of them runs."""

from fake_driver.harness import in_child


@in_child
def test_sparse_arrays_are_taken_apart_on_their_device():
    import numpy as np
    import pytest
    from cupyx.scipy import sparse
    from fake_driver.producers import Interface, driver

    import dlbridge

    class Own:
        def __init__(self, **parts):
            self.__dict__.update(parts)

    def there(values):
        part = np.array(values)
        return Interface(driver.filled(0, part.tobytes(), "device"), part.shape, part.dtype.str)

    def address(part):
        return part.__cuda_array_interface__["data"][0]

    for kind in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.csc_array, sparse.coo_matrix,
                 sparse.coo_array):
        matrix = kind.__new__(kind)
        matrix._shape = (2, 3)
        matrix.data, ones = there([1.0, 2.0]), there([0, 1])
        if matrix.format == "coo":
            matrix.row, matrix.col = ones, there([0, 2])
            parts, names = (ones, matrix.col), ("coords[0]", "coords[1]")
        else:
            matrix.indices, matrix.indptr = ones, there([0, 1, 2] if matrix.format == "csr" else [0, 1, 2, 2])
            parts, names = (ones, matrix.indptr), ("indices", "indptr")
        dlbridge.register_form(matrix.format, Own, vars, Own, parts_of="dlbridge")
        made = dlbridge.convert(matrix, Own)
        found = made.coords if matrix.format == "coo" else (made.indices, made.indptr)
        assert (made.shape, made.data.device, made.data.data_ptr) == ((2, 3), "cuda:0", address(matrix.data))
        assert [part.data_ptr for part in found] == [address(part) for part in parts]
        plan = dlbridge.explain(matrix, Own)
        assert (plan.action, tuple(plan.leaves)) == ("share", ("data", *names))
        fetched = dlbridge.convert(matrix, Own, device="cpu")
        assert dlbridge.convert(fetched.data, "numpy").tolist() == [1, 2]
        with pytest.raises(dlbridge.UnsupportedError, match=r"offers no array protocol \(pass x.toarray\(\)\)"):
            dlbridge.convert(matrix, "numpy")
        with pytest.raises(dlbridge.ConversionError, match=rf"cupy: form {matrix.format}: is not"):
            dlbridge.convert(matrix, sparse.coo_matrix if matrix.format != "coo" else sparse.csr_matrix)


@in_child
def test_types_that_its_sparse_arrays_lack():
    import numpy
    import pytest
    from cupyx.scipy import sparse

    import dlbridge

    class Own:
        def __init__(self, **parts):
            self.__dict__.update(parts)

    dlbridge.register_form("csr", Own, vars, Own)
    own = Own(shape=(1, 2), data=numpy.array([1]), indices=numpy.array([1]), indptr=numpy.array([0, 1]))
    for to in "cupy", sparse.csr_array, sparse.csr_matrix:
        with pytest.raises(dlbridge.ConversionError, match="cupy: dtype int64: is none that its sparse arrays have"):
            dlbridge.convert(own, to, device="cuda")
        assert dlbridge.explain(own, to, device="cuda").action == "refuse"
    own.data = numpy.array([1.0])
    for to in "cupy", sparse.csr_array, sparse.csr_matrix:
        plan = dlbridge.explain(own, to, device="cuda")
        assert [part.action for part in plan.leaves.values()] == ["copy"] * 3
