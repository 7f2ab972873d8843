"""What can be asked about device memory."""
