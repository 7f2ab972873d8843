"""Fake producers of Arrow's C interfaces, whose every field can be set and whose releases are counted."""

import ctypes
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_void_p

import numpy as np

from dlbridge.testing.producers import new_capsule

Release = CFUNCTYPE(None, c_void_p)
GetNext = CFUNCTYPE(c_int, c_void_p, c_void_p)
GetError = CFUNCTYPE(c_void_p, c_void_p)


class ArrowSchema(Structure):
    _fields_ = [
        ("format", c_char_p), ("name", c_char_p), ("metadata", c_char_p), ("flags", c_int64), ("n_children", c_int64),
        ("children", c_void_p), ("dictionary", c_void_p), ("release", c_void_p), ("private_data", c_void_p)]


class ArrowArray(Structure):
    _fields_ = [
        ("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64),
        ("n_children", c_int64), ("buffers", POINTER(c_void_p)), ("children", c_void_p), ("dictionary", c_void_p),
        ("release", c_void_p), ("private_data", c_void_p)]


class ArrowDeviceArray(Structure):
    _fields_ = [
        ("array", ArrowArray), ("device_id", c_int64), ("device_type", c_int32), ("sync_event", c_void_p),
        ("reserved", c_int64 * 3)]


class ArrowArrayStream(Structure):
    _fields_ = [
        ("get_schema", c_void_p), ("get_next", c_void_p), ("get_last_error", c_void_p), ("release", c_void_p),
        ("private_data", c_void_p)]


LENT = []               # whose arrays were not released: a callback must not go before its array


def metadata_of(*pairs, count=None):
    """Metadata of a schema: how many pairs there are, and each text after its length."""
    texts = b"".join(len(text).to_bytes(4, sys.byteorder) + text for pair in pairs for text in pair)
    return (len(pairs) if count is None else count).to_bytes(4, sys.byteorder, signed=True) + texts


def address_of(function):
    return ctypes.cast(function, c_void_p).value


class Structs:
    """What a producer gave out, and how often it was released; by the callbacks of C, as the format wants it."""

    def __init__(self, **fields):
        self.values = np.arange(6, dtype="float32")
        self.given = fields
        self.kept = []
        self.released = {"schema": 0, "array": 0, "stream": 0}
        self.releases = {kind: Release(self.release_of(kind, struct)) for kind, struct in (
            ("schema", ArrowSchema), ("array", ArrowArray), ("stream", ArrowArrayStream))}

    def release_of(self, kind, struct):
        def release(address):
            self.released[kind] += 1
            struct.from_address(address).release = None
            if kind == "array":
                LENT.remove(self)
        return release

    def field(self, name, default):
        return self.given.get(name, default)

    def child_of(self, struct):
        """The address of a pointer to the child's struct, if the elements are lists."""
        child = self.field("child", None)
        if child is None:
            return self.field("children", None)
        self.kept.append((c_void_p * 1)(ctypes.addressof(getattr(child, struct)())))
        return ctypes.addressof(self.kept[-1])

    def schema(self):
        schema = ArrowSchema(
            format=self.field("format", b"f"), name=self.field("name", None), metadata=self.field("metadata", None),
            n_children=self.field("n_children", int("child" in self.given)), children=self.child_of("schema"),
            dictionary=self.field("dictionary", None),
            release=self.field("schema_release", address_of(self.releases["schema"])))
        self.kept.append(schema)
        return schema

    def array(self, **fields):
        fields = self.given | fields
        bits = fields.get("bits")
        if bits is not None:
            bits = np.packbits(np.array(bits, bool), bitorder="little")
            self.kept.append(bits)
            bits = bits.ctypes.data
        buffers = (c_void_p * 2)(bits, fields.get("data", self.values.ctypes.data))
        array = ArrowArray(
            length=fields.get("length", 6), null_count=fields.get("null_count", 0), offset=fields.get("offset", 0),
            n_buffers=fields.get("n_buffers", 2), n_children=fields.get("array_children", int("child" in fields)),
            children=self.child_of("array"), release=fields.get("release", address_of(self.releases["array"])))
        if fields.get("buffers", True):
            array.buffers = ctypes.cast(buffers, POINTER(c_void_p))
        self.kept += [buffers, array]
        LENT.append(self)
        return array

    def capsule(self, struct, name):
        self.kept.append(name)
        return new_capsule(ctypes.addressof(struct), name, None)


class OfArray(Structs):
    """With ``__arrow_c_array__``."""

    def __arrow_c_array__(self, requested_schema=None):
        return self.capsule(self.schema(), b"arrow_schema"), self.capsule(self.array(), b"arrow_array")


class OfDeviceArray(Structs):
    """With ``__arrow_c_device_array__``."""

    def __arrow_c_device_array__(self, requested_schema=None, **keywords):
        event = self.field("event", None)
        pointer = None
        if event is not None:
            self.kept.append(c_void_p(event))
            pointer = ctypes.addressof(self.kept[-1])
        struct = ArrowDeviceArray(
            array=self.array(), device_id=self.field("device_id", -1), device_type=self.field("device_type", 1),
            sync_event=pointer)
        self.kept.append(struct)
        return self.capsule(self.schema(), b"arrow_schema"), self.capsule(struct, b"arrow_device_array")


class OfStream(Structs):
    """With ``__arrow_c_stream__``, of as many chunks as lengths are given."""

    def __init__(self, *lengths, **fields):
        super().__init__(**fields)
        self.lengths = lengths

    def __arrow_c_stream__(self, requested_schema=None):
        left = list(self.lengths)

        @GetNext
        def get_schema(_, out):
            ArrowSchema.from_address(out).__init__()
            ctypes.memmove(out, ctypes.addressof(self.schema()), ctypes.sizeof(ArrowSchema))
            return self.field("schema_error", 0)

        @GetNext
        def get_next(stream, out):
            if left:
                ctypes.memmove(out, ctypes.addressof(self.array(length=left.pop(0))), ctypes.sizeof(ArrowArray))
            else:
                ctypes.memset(out, 0, ctypes.sizeof(ArrowArray))
                if self.field("ends_itself", False):
                    Release(self.field("stream_release", address_of(self.releases["stream"])))(stream)
            return self.field("next_error", 0)

        @GetError
        def get_last_error(_):
            text = self.field("said", None)
            return None if text is None else address_of(c_char_p(text))

        stream = ArrowArrayStream(
            get_schema=self.field("get_schema", address_of(get_schema)),
            get_next=self.field("get_next", address_of(get_next)),
            get_last_error=address_of(get_last_error),
            release=self.field("stream_release", address_of(self.releases["stream"])))
        self.kept += [get_schema, get_next, get_last_error, stream]
        return self.capsule(stream, b"arrow_array_stream")
