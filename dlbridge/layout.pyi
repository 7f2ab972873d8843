"""Shape arithmetic on plain arrays of int64: no objects, no GIL, no exception."""
