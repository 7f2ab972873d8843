"""What people write for ``to`` and mean something else by."""

from dlbridge._core.dtypes import TABLE

# By what is written, or the first part of its path, in small letters: the name that is meant.
MEANT = {
    "np": "numpy",
    "ndarray": "numpy",
    "array": "numpy",
    "jnp": "jax",
    "tf": "tensorflow",
    "keras": "tensorflow",
    "pt": "torch",
    "pytorch": "torch",
    "tensor": "torch",
    "pa": "pyarrow",
    "arrow": "pyarrow",
    "ort": "onnxruntime",
    "onnx": "onnxruntime",
    "cp": "cupy",
    "mx": "mlx",
    "pd": "pandas",
    "pl": "polars",
    "xr": "xarray",
    "sp": "scipy",
    "paddlepaddle": "paddle",
    "tvm": "tvm_ffi",
    "wp": "warp",
    "ov": "openvino",
    "tflite": "litert",
    "ms": "mindspore",
    "pil": "pillow",
    "image": "pillow",
    "capsule": "dlpack",
    "pycapsule": "dlpack",
    "buffer": "memoryview",
}
# What dlbridge makes no arrays for: the code that makes one of x. Tests run it.
AS_NUMPY = 'dlbridge.convert(x, "numpy")'
INSTEAD = {
    "pandas": f"pandas.DataFrame({AS_NUMPY})",
    "pandas.series": f"pandas.Series({AS_NUMPY})",
    "pandas.index": f"pandas.Index({AS_NUMPY})",
    "polars": f"polars.from_numpy({AS_NUMPY})",
    "polars.series": f"polars.Series({AS_NUMPY})",
    "xarray": f"xarray.DataArray({AS_NUMPY})",
    "zarr": f"zarr.array({AS_NUMPY})",
    "dask": f"dask.array.from_array({AS_NUMPY})",
    "list": f"{AS_NUMPY}.tolist()",
    "tuple": f"tuple({AS_NUMPY}.tolist())",
    "bytes": f"{AS_NUMPY}.tobytes()",
    "bytearray": f"bytearray({AS_NUMPY})",
    **dict.fromkeys(("sklearn", "skimage", "cv2", "h5py", "matplotlib", "numexpr"), AS_NUMPY),
}
NUMBERS = {*(row[0] for row in TABLE), "int", "float", "complex", "half", "double", "long"}
DEVICES = ("cpu", "cuda", "gpu", "mps", "rocm", "xpu", "tpu")
FUNCTIONS = ("function", "builtin_function_or_method", "method")
# The types in the header of a file of safetensors.
SAFETENSORS = {
    "BOOL": "bool", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    **{f"{letter}{bits}": f"{kind}{bits}" for letter, kind, sizes in (
        ("I", "int", (8, 16, 32, 64)), ("U", "uint", (8, 16, 32, 64)), ("F", "float", (16, 32, 64))) for bits in sizes},
}
