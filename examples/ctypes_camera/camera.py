"""A camera whose driver is called by ctypes: its frames are arrays of any library, in the driver's own memory."""

import ctypes
from pathlib import Path
from typing import Any

import dlbridge

SHAPE = (48, 64)


class Lease:
    """A buffer that the driver has lent. It goes back when the last array over it is gone."""

    def __init__(self, driver: ctypes.CDLL, address: int) -> None:
        self.driver = driver
        self.address = address

    def __del__(self) -> None:
        self.driver.camera_done(self.address)


class Camera:
    """Takes the driver's library, which ``cc -shared -fPIC driver.c -o driver.so`` makes here."""

    def __init__(self, library: Path) -> None:
        self.driver = ctypes.CDLL(str(library))
        self.driver.camera_next.restype = ctypes.c_void_p
        for name in ("camera_done", "camera_set_background"):
            getattr(self.driver, name).argtypes = [ctypes.c_void_p]

    def frame(self, to: Any = "numpy") -> Any:
        """The next frame, as an array of a library: its name, its module, or an array of it.

        Nothing is copied, but for libraries that want memory more strictly aligned than the driver's (JAX: 64 bytes).
        """
        address = self.driver.camera_next()
        if address is None:
            raise BlockingIOError("camera: every buffer is in use (let go of earlier frames)")
        frame = dlbridge.from_pointer(address, SHAPE, "uint8", owner=Lease(self.driver, address))
        # The driver writes to the buffer only after it has gone back, so immutable arrays may share it.
        return dlbridge.convert(frame, to, readonly="share")

    def set_background(self, image: Any) -> None:
        """Add an image to every frame from now on: an array of any library, or bytes in an array's shape."""
        tensor = dlbridge.asdlpack(image)
        if tensor.dtype != "uint8" or tensor.nbytes != SHAPE[0] * SHAPE[1] or not memoryview(tensor).c_contiguous:
            raise ValueError(f"camera: image {tensor.dtype} {tensor.shape}: is not uint8 of {SHAPE} in C order")
        self.driver.camera_set_background(tensor.data_ptr)
