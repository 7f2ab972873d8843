"""Large tensors of several classes, for programs whose memory may go."""

import torch

COUNT = 300_000


class Special(torch.nn.Parameter):
    pass


class MoreSpecial(Special):
    pass


class Described(torch.Tensor):
    pass


def tensor_of(kind):
    tensor = torch.full((COUNT,), 7.0)
    return tensor if kind is torch.Tensor else tensor.as_subclass(kind) if kind is Described else kind(tensor, False)


def is_kept(array):
    others = [torch.zeros(COUNT) for _ in range(3)]      # freed memory is used again
    return len(others) == 3 and float(array[0]) == float(array[COUNT - 1]) == 7.0
