"""Frames of the driver's own memory, as arrays of every library, and back to the driver when the last one is gone."""

import gc
import subprocess
import sysconfig
from pathlib import Path

import camera
import numpy as np
import pytest

jax = pytest.importorskip("jax.numpy")
torch = pytest.importorskip("torch")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    library = tmp_path_factory.mktemp("driver") / "driver.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", HERE / "driver.c", "-o", library], check=True, timeout=100)
    return camera.Camera(library)


@pytest.mark.parametrize(("to", "kind"), [
    ("numpy", np.ndarray), (torch, torch.Tensor), (torch.zeros(1), torch.Tensor), ("jax", jax.ndarray),
    ("memoryview", memoryview)], ids=["numpy", "torch", "like a tensor", "jax", "memoryview"])
def test_a_frame_is_lent_until_its_last_array_is_gone(opened, to, kind):
    frame = opened.frame(to)
    part = frame[1:]
    assert isinstance(frame, kind)
    assert opened.driver.camera_lent() == 1
    del frame
    gc.collect()
    assert opened.driver.camera_lent() == (0 if kind is jax.ndarray else 1)     # a slice of JAX's is a copy
    del part
    gc.collect()
    assert opened.driver.camera_lent() == 0


def test_frames_are_not_copied(opened):
    frames = [opened.frame(), opened.frame("torch").numpy()]
    assert frames[1].ctypes.data - frames[0].ctypes.data == frames[0].nbytes, "in the driver's two buffers"


def test_a_driver_without_a_buffer_says_so(opened):
    kept = [opened.frame() for _ in range(3)]
    with pytest.raises(BlockingIOError, match="every buffer is in use"):
        opened.frame()
    del kept
    opened.frame()


class Interface:
    """Has __array_interface__ alone."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy, jax.asarray, bytes, Interface],
                         ids=["numpy", "torch", "jax", "bytes", "interface"])
def test_any_array_goes_to_the_driver(opened, make):
    before = opened.frame().astype("int")
    opened.set_background(make(np.full(camera.SHAPE, 100, "uint8")))
    difference = opened.frame().astype("int") - before
    opened.set_background(bytes(48 * 64))
    assert set(np.unique(difference)) == {101}


def test_another_image_is_refused(opened):
    for image in (np.zeros(camera.SHAPE), np.zeros(camera.SHAPE, "u1")[:, ::2], np.zeros((64, 48), "u1").T):
        with pytest.raises(ValueError, match="is not uint8"):
            opened.set_background(image)
