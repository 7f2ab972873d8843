"""What dlbridge knows about each DLPack device type, and what it can do with device memory."""
