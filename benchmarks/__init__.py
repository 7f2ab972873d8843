"""The groups of ``dlbridge bench``, one file each."""
