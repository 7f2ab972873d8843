"""Calling a target library, and putting its errors into dlbridge's words."""
