"""Any namespace with ``from_dlpack``, and targets that users register."""
