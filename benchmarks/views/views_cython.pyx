# cython: language_level=3, binding=False, freethreading_compatible=True
"""The same by Cython: a typed memoryview as the argument."""


def nothing(array):
    pass


def view(const float[:, :] array):
    pass


def view_asked(const float[:, ::1] array):
    pass
