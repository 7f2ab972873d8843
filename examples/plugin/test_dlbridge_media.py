"""Run after ``pip install ./examples/plugin``: no test imports the plug-in."""

import io
import subprocess
import sys
import wave

import numpy as np
import pytest

import dlbridge

SOUND = np.arange(12, dtype="<i2").reshape(6, 2)
PICTURE = np.arange(60, dtype="uint8").reshape(4, 5, 3)


def sound_file(width=2):
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(2)
        sound.setsampwidth(width)
        sound.setframerate(8000)
        sound.writeframes(SOUND.tobytes())
    file.seek(0)
    return wave.open(file)


def test_the_name_is_known_before_the_plugin_is_loaded():
    code = "import sys, dlbridge; print('pillow' in dlbridge.targets(), 'dlbridge_media' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_sound_is_an_array():
    assert dlbridge.convert(sound_file(), "numpy").tolist() == SOUND.tolist()
    assert dlbridge.asdlpack(sound_file()).dtype == "int16"


def test_sound_of_another_width_is_refused():
    with pytest.raises(dlbridge.ConversionError, match="sampwidth 1: is not 2"):
        dlbridge.convert(sound_file(1), "numpy")


@pytest.mark.parametrize(("picture", "mode"), [(PICTURE, "RGB"), (PICTURE[..., 0].copy(), "L")])
def test_picture_is_an_image(picture, mode):
    image = dlbridge.convert(picture, "pillow")
    assert (image.mode, image.size) == (mode, (5, 4))
    assert image.tobytes() == picture.tobytes()


def test_image_is_over_the_same_memory():
    picture = PICTURE[..., 0].copy()
    image = dlbridge.convert(picture, "pillow", copy=False)
    picture[0, 0] = 200
    assert image.getpixel((0, 0)) == 200


def test_flipped_picture_is_copied():
    assert dlbridge.explain(PICTURE[::-1], "pillow").action == "copy"
    assert dlbridge.convert(PICTURE[::-1], "pillow").tobytes() == PICTURE[::-1].tobytes()


def test_other_types_are_refused():
    with pytest.raises(dlbridge.ConversionError, match="pillow: dtype float32"):
        dlbridge.convert(PICTURE.astype("float32"), "pillow")


def test_image_stays_itself():
    image = dlbridge.convert(PICTURE, "pillow")
    assert dlbridge.convert(image, "pillow") is image
