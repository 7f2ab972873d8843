"""The plan: what the library and the driver are asked, what is decided, and how that is said."""

BY_COPY: str
