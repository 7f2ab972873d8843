"""A DLPack capsule."""
