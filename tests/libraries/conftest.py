"""Every library of the extra "all" in one process: Paddle before TensorFlow, or the process ends."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import paddle  # noqa: F401
import tensorflow  # noqa: F401
