"""One file per target library, each with the same pair: ``accepts(managed, target)``, ``deliver(managed, target)``."""
