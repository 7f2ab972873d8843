"""What dlbridge knows and can do about each kind of device: one row per DLPack device type."""
