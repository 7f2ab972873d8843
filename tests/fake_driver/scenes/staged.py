"""Large transfers by several threads, each by pieces that are small here."""

import numpy as np
from dlbridge._core.devices.staging import _set_staging

import dlbridge

PIECE, THREADS = 4096, 3
_set_staging(4 * PIECE, PIECE, THREADS)
random = np.random.default_rng(0)


def refused(call, *parts):
    try:
        call()
    except dlbridge.DeviceError as error:
        assert all(part in str(error) for part in parts), error
    else:
        raise AssertionError("it was done")
