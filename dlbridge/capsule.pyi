"""DLPack capsules over a Managed: what travels from a producer's ``__dlpack__`` to a consumer."""
