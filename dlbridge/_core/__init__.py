"""The compiled core: protocols in, protocols out, and the rooms between them. Nothing in here is public."""
