"""dlbridge.Tensor itself."""
