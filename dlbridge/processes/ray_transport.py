"""Tensors from actor to actor of Ray on one machine, by the descriptor of their memory: of the host, or of a GPU."""

import functools
import pickle
import sys
from dataclasses import dataclass
from typing import Any

from ray.experimental import register_tensor_transport  # type: ignore[import-not-found, unused-ignore]
from ray.experimental.rdt.tensor_transport_manager import (  # type: ignore[import-not-found, unused-ignore]
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
)

from dlbridge.errors import UnsupportedError, refusal
from dlbridge.processes import prepared, shared
from dlbridge.processes.descriptors import offer, withdraw
from dlbridge.processes.sending import receive
from dlbridge.tensor import Tensor

NAME = "DLBRIDGE"


@functools.cache
def register() -> None:
    """Let methods of Ray's actors give Tensors by descriptors: those with ``@ray.method(tensor_transport="DLBRIDGE")``.

    Call it in the process that makes the actors, before it makes them. Actors of the same machine that take such a
    result map its memory: what is in memory of :func:`dlbridge.shared` is not copied, and every other Tensor once, by
    the actor that gives it. All Tensors of a result are on the host, or all on GPUs; without elements they arrive on
    the host. Ray calls this experimental.
    """
    if sys.platform == "win32":
        raise refusal(UnsupportedError, "ray_transport", "system", sys.platform, "gives a handle once alone",
                      "leave tensor_transport out of ray.method")
    register_tensor_transport(NAME, ["cpu", "cuda"], Transport, Tensor)


@dataclass
class Offers(TensorTransportMetadata):  # type: ignore[misc, unused-ignore]
    """What the actor that has the Tensors tells of them."""

    offers: tuple[Any, ...] = ()        # what received() takes, for each


class Transport(TensorTransportManager):  # type: ignore[misc, unused-ignore]
    """What Ray calls in the actor that has the Tensors, and in each one that takes them."""

    def __init__(self) -> None:
        self.offered: dict[str, Offers] = {}        # by Ray's name of a result

    @property
    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: Any = None) -> Any:
        return CommunicatorMetadata()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Tensor]) -> Offers:
        """Offer Tensors, also several times, until Ray has no use for them any more. Ray may ask again."""
        if obj_id not in self.offered:
            self.offered[obj_id] = all_offered([in_shared_memory(tensor) for tensor in rdt_object])
        return self.offered[obj_id]

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Offers, communicator_metadata: Any, target_buffers: Any = None,
    ) -> list[Tensor]:
        if target_buffers:
            raise ValueError("ray_transport: target_buffers: cannot be filled (leave them out: nothing is copied)")
        return [received(*each) for each in tensor_transport_metadata.offers]

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        raise NotImplementedError("ray_transport: receivers fetch by themselves")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Offers, tensors: Any) -> None:
        take_back(self.offered.pop(obj_id, tensor_transport_meta).offers)

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Nothing is to be done: a receiver does not wait for a sender that is gone."""


def in_shared_memory(tensor: Tensor) -> Tensor:
    made = shared(tensor)
    if made.size and not prepared("segment").is_shared(made, False):        # a small one, of a GPU
        made = prepared("device_segment").shared_copy(made, None, False)
    return made


def all_offered(tensors: list[Tensor]) -> Offers:
    about = [(tensor.shape, tensor.dtype) for tensor in tensors]
    devices = {tensor.device.partition(":")[0] for tensor in tensors if tensor.size} or {"cpu"}
    if len(devices) > 1:
        raise ValueError(f"ray_transport: devices {sorted(devices)}: are of two kinds (return them from two methods)")
    offers: list[Any] = []
    try:
        for tensor in tensors:
            offers.append(offered(tensor))
    except BaseException:
        take_back(offers)
        raise
    return Offers(about, *devices, offers=tuple(offers))


def offered(tensor: Tensor) -> tuple[Any, ...]:
    """What received() takes to make a Tensor over the same memory, as often as it is called."""
    if not tensor.size:
        return pickle.loads, (pickle.dumps(tensor),), (), ()
    make, (segment, *arguments) = prepared("segment").sendable(tensor).in_segment()
    return make, arguments, (type(segment), segment.as_sent()), offer(segment, lasts=True)


def received(make: Any, arguments: Any, segment: Any, kept: Any) -> Tensor:
    tensor: Tensor = make(receive(*segment, *kept), *arguments) if kept else make(*arguments)
    return tensor


def take_back(offers: Any) -> None:
    for *_, kept in offers:
        if kept:
            withdraw(*kept)
