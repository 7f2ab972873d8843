"""The compiled core: the sources, the targets, and what is between them. Nothing in it is public."""
