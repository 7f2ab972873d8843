"""Libraries whose arrays are never taken as they are, and what to do instead; and those with one fact only."""

from dlbridge.libraries.library import Arrays, Fact, Library

AS_NUMPY = {"": "pass numpy.asarray(x)"}
# What is not in memory, or not yet, is not brought there unasked.
INDEXED = {"": "pass x[...]"}

LIBRARIES = (
    Library(
        name="builtins",
        arrays=(
            *(Arrays(name, AS_NUMPY) for name in ("list", "tuple", "range", "int", "float", "complex")),
            Arrays("str", {"": "pass x.encode()"}),
            Arrays("dict", {"": "pass its values one by one"}),
            Arrays("NoneType", {"": "there is nothing to convert: is a return statement missing?"}),
            Arrays("type", {"": "pass an instance, not the class"}),
        ),
    ),
    Library(
        name="astropy",
        arrays=(
            Arrays("MaskedNDArray", {"mask": "pass x.filled(value), or x.unmasked if the mask does not matter"},
                   masked=Fact("mask", "seen in 8.0.2", "keeps a mask beside the values that it exports")),
        ),
    ),
    Library(
        name="SimpleITK",
        arrays=(
            Arrays("Image", {"": "pass SimpleITK.GetArrayFromImage(x)"}),
        ),
    ),
    Library(
        name="av",
        arrays=(
            Arrays("VideoFrame", {"": "pass x.planes[0], or x.to_ndarray()"}),
            Arrays("AudioFrame", {"": "pass x.planes[0], or x.to_ndarray()"}),
        ),
    ),
    Library(
        name="weakref",
        arrays=tuple(
            Arrays(name, gives=Fact(lambda proxy: proxy.__init__.__self__, "seen in 3.11", "does not keep its object"))
            for name in ("ProxyType", "CallableProxyType")),
    ),
    Library(name="awkward", arrays=(Arrays("*", {"": "pass awkward.to_numpy(x, allow_missing=False)"}),)),
    Library(
        name="cuda.core",
        devices=Fact({"Device": lambda device: f"cuda:{device.device_id}"}, "seen in 1.2.2"),
        arrays=(
            Arrays("StridedMemoryView",
                   exchange=Fact("cuda.core._memoryview.StridedMemoryView", "seen in 1.2.2")),
        ),
    ),
    Library(
        name="pillow",
        module="PIL.Image",
    ),
    Library(name="cv2", arrays=(Arrays("UMat", {"": "pass x.get()"}),)),
    Library(name="h5py", arrays=(Arrays("*", INDEXED),)),
    Library(
        name="scipy",
        arrays=(Arrays("*", {"": "pass x.toarray(), or its parts x.data, x.indices, x.indptr"}),),
    ),
    Library(name="xarray", arrays=(Arrays("*", {"": "pass x.data"}),)),
    Library(name="zarr", arrays=(Arrays("*", INDEXED),)),
)
