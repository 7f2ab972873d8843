"""What the libraries say while they are imported is none of dlbridge's."""

import os
import shutil
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
if shutil.which("clang") is None:
    os.environ.setdefault("DEV", "PYTHON")      # tinygrad's one device on the host that compiles nothing

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import libraries.rows  # noqa: F401
