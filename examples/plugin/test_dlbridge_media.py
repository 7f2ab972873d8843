"""Run after ``pip install ./examples/plugin``: no test imports the plug-in."""

import io
import subprocess
import sys
import wave

import numpy as np
import pytest

import dlbridge

SOUND = np.arange(12, dtype="<i2").reshape(6, 2)


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
    code = "import sys, dlbridge; print('wav' in dlbridge.targets(), 'dlbridge_media' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_sound_is_an_array():
    assert dlbridge.convert(sound_file(), "numpy").tolist() == SOUND.tolist()
    assert dlbridge.asdlpack(sound_file()).dtype == "int16"


def test_sound_of_another_width_is_refused():
    with pytest.raises(dlbridge.ConversionError, match="sampwidth 1: is not 2"):
        dlbridge.convert(sound_file(1), "numpy")


@pytest.mark.parametrize("samples", [SOUND, SOUND[:, 0], SOUND[::-1], SOUND.astype(">i2")],
                         ids=["stereo", "mono", "backwards", "big-endian"])
def test_samples_become_a_file(samples):
    file = dlbridge.convert(samples, "wav")
    with wave.open(file) as sound:
        assert sound.getnchannels() == (samples.shape[1] if samples.ndim == 2 else 1)
        assert dlbridge.convert(sound, "numpy").ravel().tolist() == samples.ravel().tolist()


def test_other_types_and_shapes_are_refused():
    with pytest.raises(dlbridge.ConversionError, match="wav: dtype float32"):
        dlbridge.convert(SOUND.astype("float32"), "wav")
    with pytest.raises(dlbridge.ConversionError, match="wav: ndim 3"):
        dlbridge.convert(SOUND[None], "wav")
