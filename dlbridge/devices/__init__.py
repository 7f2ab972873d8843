"""Questions that can be asked about device memory."""
