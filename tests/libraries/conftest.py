"""What the libraries say while they are imported is none of dlbridge's."""

import os
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import libraries.rows  # noqa: F401
