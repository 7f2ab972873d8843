"""The buffer protocol, PEP 3118."""
