"""place: copy, swap, relabel: Managed* -> Managed*."""
