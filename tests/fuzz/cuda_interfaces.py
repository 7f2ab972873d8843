"""``__cuda_array_interface__`` of any content. Without a driver nothing is accepted; all of it is read all the same."""

from fuzz import interfaces


def run(source):
    interfaces.run(source, cuda=True)
