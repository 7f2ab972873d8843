"""Seed faults into a copy of the package, one at a time, and see whether the tests find them: faults.py TREE [NAME...].

TREE is a copy of the repository that was built in place: ``tools/with_libraries.sh faults`` makes one. Each fault
changes one file and recompiles one module at most. The tests that are about it run first, then all of them; a line
says which one found it. Names choose some of the faults. The exit status is the number of faults that nobody found.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

CORE = "dlbridge/_core/"


class Fault(NamedTuple):
    """A text that stands once in a file, what takes its place, and the tests that are about it."""

    name: str
    file: str
    old: str
    new: str
    tests: str


FAULTS = (
    # ---- facts
    Fault("capsules of immutable arrays are writable", CORE + "sources/dlpack.pyx",
          "immutable = owner is not None and library().makes_immutable(owner)", "immutable = False",
          "legacy_capsules"),
    Fault("JAX's arrays may change", "dlbridge/libraries/jax.py",
          'Fact("WRITABLE", "seen in 0.10.2", "has immutable arrays"),', "", "immutable_targets"),
    Fault("read-only is constant", CORE + "plan.pyx", "writer_of(managed) is None)", "True)", "constant"),
    Fault("memory of other programs is a file's", "dlbridge/_core/system_memory.py",
          "return kind is not None and kind not in NOT_ON_DISK", "return kind is not None", "constant"),
    Fault("JAX shares at 16 bytes", "dlbridge/libraries/jax.py", "alignment=Fact(64,", "alignment=Fact(16,", "layouts"),
    Fault("JAX holds holes", "dlbridge/libraries/jax.py",
          'Fact("ANY_STRIDES", "jax#8082", "takes only arrays without holes, in any order of the axes"),', "",
          "layouts conversions"),
    # ---- flags
    Fault("buffers are writable", CORE + "sources/buffer.pyx", "if view.readonly:", "if False:", "policies"),
    Fault("ndarrays are writable", CORE + "native/numpy.pyx",
          "    if not array_flags(array) & ARRAY_WRITEABLE:", "    if False:", "policies"),
    Fault("results of NumPy are writable", CORE + "native/numpy.pyx",
          "0 if memory.abi.flags & DLPACK_FLAG_BITMASK_READ_ONLY else ARRAY_WRITEABLE", "ARRAY_WRITEABLE", "policies"),
    Fault("interfaces over read-only buffers are writable", CORE + "sources/array_interface.pyx",
          "    if view.readonly:", "    if False:", "conversions"),
    Fault("read-only memory that nobody else has is shared", CORE + "decision.pyx",
          "if writable and managed_alone(managed) and (host or not target.copies_own):", "if managed_alone(managed):",
          "pickles"),
    Fault("a legacy capsule flags read-only memory", "dlbridge/libraries/dlpack.py",
          '        Fact("READ_ONLY", "dlpack 1.3", "has no flags"),\n', "", "tensor policies"),
    Fault("a Tensor's policy is not its exports'", CORE + "exports.pyx",
          "    request.readonly = policy\n    if copy is True:", "    if copy is True:", "tensor policies"),
    Fault("copies are not flagged", CORE + "place.pyx", "block.abi.flags = DLPACK_FLAG_BITMASK_IS_COPIED | (",
          "block.abi.flags = (", "abi tensor"),
    Fault("a producer's copy passes for none", CORE + "sources/dlpack.pyx",
          "request.copy == COPY_NEVER and managed.abi.flags & DLPACK_FLAG_BITMASK_IS_COPIED", "False",
          "hostile_producers"),
    # ---- strides and extents
    Fault("strides are not copied with the shape", CORE + "block.pyx",
          "2 * base.abi.dl_tensor.ndim * sizeof(int64_t)", "base.abi.dl_tensor.ndim * sizeof(int64_t)", "tensor"),
    Fault("a fragment of a stride is cut off", CORE + "block.pyx", "            odd = True", "            odd = False",
          "layouts"),
    Fault("odd strides of one element count", CORE + "block.pyx", "& odd_bits and shape[axis] > 1:", "& odd_bits:",
          "layouts"),
    Fault("no data with elements", CORE + "block.pyx", "if tensor.data == NULL and count:", "if False:",
          "hostile_producers protocols"),
    Fault("negative extents are sound", CORE + "layout.pyx", "elif shape[axis] < 0:", "elif False:",
          "hostile_producers"),
    Fault("repeated elements are not seen", CORE + "layout.pyx", "        reach.found |= REPEATED",
          "        reach.found |= 0", "layouts copies"),
    Fault("windows do not overlap", CORE + "layout.pyx", "strides[nearest]) < reach:\n            return True",
          "strides[nearest]) < reach:\n            return False", "policies"),
    Fault("the reach beyond the end is not seen", CORE + "layout.pyx", "high <= LARGEST_SPAN", "True",
          "hostile_producers"),
    Fault("a span begins at its first element", CORE + "place.pyx",
          "block.abi.dl_tensor.data = <char*> block.abi.dl_tensor.data - span.low_bytes", "pass", "policies copies"),
    Fault("a shape may reach before its buffer", CORE + "sources/array_interface.pyx",
          "start + span.low_bytes < 0 or ", "", "hostile_producers protocols"),
    Fault("pairs keep their extent", CORE + "place.pyx", "extent[0] // 2", "extent[0]", "torch_kinds dtypes copies"),
    Fault("the length of a buffer is taken on trust", CORE + "sources/buffer.pyx",
          "if managed_count(managed) << get_row(row).item_shift != view.len:", "if False:", "hostile_producers"),
    # ---- layouts for the target
    Fault("torch gets strides of zero as JAX does", CORE + "decision.pyx",
          "elif managed.marks & REPEATED and not supports & ZERO_STRIDES:", "elif False:", "layouts"),
    Fault("no address is misaligned", CORE + "decision.pyx",
          "<size_t> managed_data(managed) & low_bits_of(managed, target) != 0)", "False)", "layouts"),
    Fault("copy=False copies", CORE + "decision.pyx", "if request.copy == COPY_NEVER and is_copy(out):", "if False:",
          "policies layouts"),
    Fault("copies lie at 16 bytes", CORE + "place.pyx", "memory + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT",
          "memory + 15) // 16 * 16", "copies"),
    Fault("a copy for C order keeps its order", CORE + "place.pyx", "steps & (PAIRS_TO_PACKED | PACK | IN_C_ORDER)",
          "steps & (PAIRS_TO_PACKED | PACK)", "layouts"),
    # ---- byte order and signs
    Fault("buffers of the other byte order are not swapped", CORE + "sources/buffer.pyx", "    if swapped:",
          "    if False:", "protocols"),
    Fault("complex numbers are swapped whole", CORE + "place.pyx", "SWAP_HALVES if complex_words else SWAP", "SWAP",
          "copies protocols"),
    Fault("the imaginary half keeps its sign", CORE + "place.pyx",
          "            flip(copy, sign + number_bytes)", "            pass", "copies policies out"),
    Fault("signs are in the last byte in either order", CORE + "place.pyx", "0 if into.marks & SWAPPED else ", "",
          "out"),
    # ---- ownership
    Fault("the buffer behind an interface is released at once", CORE + "sources/array_interface.pyx",
          "managed_own_object(managed, (owner, buffer))", "managed_own_object(managed, owner)", "held_bases"),
    Fault("a bad offset keeps the exporter", CORE + "sources/array_interface.pyx",
          "    except BaseException:\n        managed_release(managed)\n        raise\n    managed = managed_checked",
          "    except BaseException:\n        raise\n    managed = managed_checked", "held_bases"),
    Fault("a refused buffer stays exported", CORE + "sources/buffer.pyx",
          "    except BaseException:\n        PyBuffer_Release(view)\n        raise",
          "    except BaseException:\n        raise", "hostile_producers"),
    Fault("a lent block is never dropped", CORE + "block.pyx",
          "cdef void release_base(void* owner) noexcept nogil:\n    managed_drop(<Managed*> owner)",
          "cdef void release_base(void* owner) noexcept nogil:\n    pass", "lifetime leaks"),
    Fault("memory of a Tensor counts as nobody else's", CORE + "block.pyx", "load(&lent.references) <= 2",
          "load(&lent.references) <= 3", "immutable_targets"),
    Fault("an object beside the owner is never dropped", CORE + "block.pyx",
          "    if not kept.released_first:\n        release_object(kept.object)\n", "", "storages lifetime leaks"),
    Fault("an export is given back after its owner", CORE + "block.pyx", "keep(managed, export, True)",
          "keep(managed, export, False)", "held_bases"),
    Fault("an object beside the owner is dropped twice", CORE + "block.pyx", "    Py_INCREF(obj)\n", "",
          "lifetime leaks storages"),
    Fault("what a copy replaces is never dropped", CORE + "steps.pyx", "                managed_drop(managed)\n", "",
          "lifetime leaks"),
    Fault("a step is left out", CORE + "steps.pyx",
          "    if step == UNPACK:\n        return repacked(managed, True)\n", "", "dtypes torch_kinds ways_out"),
    Fault("the copy of a failed fetch is never freed", CORE + "place.pyx",
          "    except BaseException:\n        managed_release(block)\n        raise\n    if is_bool",
          "    except BaseException:\n        raise\n    if is_bool", "leaks"),
    Fault("a copy of bools keeps their bytes", CORE + "decision.pyx",
          "managed.abi.dl_tensor.dtype.code == kDLBool and managed.abi.dl_tensor.dtype.bits == 8", "False", "copies"),
    Fault("a legacy capsule is not renamed", CORE + "sources/dlpack.pyx",
          "PyCapsule_SetName(capsule, USED_LEGACY_NAME)", "pass", "hostile_producers"),
    Fault("a capsule that nobody took is lost", CORE + "capsule.pyx",
          "tensor = <DLManagedTensor*> PyCapsule_GetPointer(capsule, LEGACY_NAME)\n        tensor.deleter(tensor)",
          "pass", "lifetime leaks"),
    # ---- streams
    Fault("the producer waits for the consumer", CORE + "devices/streams.pyx",
          "order_on_device(handover.driver, handover.device_id, ready, stream)",
          "order_on_device(handover.driver, handover.device_id, stream, ready)", "order"),
    Fault("memory by __dlpack__ goes back in nobody's order", CORE + "sources/dlpack.pyx",
          "if told is not None and offer.stream_object is not None:", "if False:", "release"),
    Fault("strides that an export would say wrongly are believed", CORE + "sources/dlpack.pyx",
          "    if not counts_in_elements(obj.strides, obj.itemsize):", "    if False:", "release"),
    Fault("an export that nobody orders is noted on no stream", CORE + "sources/dlpack.pyx",
          "set_producer(managed, stream, keeper, False)", "set_producer(managed, STREAM_UNORDERED, None, False)",
          "release"),
    Fault("a batch is in its source's memory", "dlbridge/trees/walk.pyx",
          "        if own and self.request.copy == COPY_IF_NEEDED:", "        if False:", "prefetch"),
    Fault("the words of a batch are its source's", "dlbridge/trees/prefetching.py",
          "made = np.array(array, subok=True)", "made = array", "prefetch"),
    Fault("a batch on a device is in its source's memory", "dlbridge/trees/ahead.pyx",
          "        request.copy = COPY_UNLESS_CONSTANT", "        request.copy = COPY_IF_NEEDED", "transfers"),
    Fault("the uploads of a tree are not waited for", "dlbridge/trees/walk.pyx",
          "    await_tree(take)\n    return made", "    return made", "transfers"),
    Fault("what a queued upload reads is not kept", CORE + "uploads.pyx", "    upload[2] = array",
          "    upload[1:] = None, array", "transfers"),
    Fault("a producer's code runs while uploads are queued", "dlbridge/trees/walk.pyx",
          " or not runs_no_code(value)):", "):", "transfers"),
    Fault("the host does not wait", CORE + "devices/streams.pyx",
          "        cuda.wait_for_stream(handover.driver, handover.device_id, stream, &failure)", "        pass",
          "host_memory"),
    Fault("a copy on a device stays read-only", CORE + "devices/transfers.pyx",
          "    block.abi.flags &= ~<uint64_t> DLPACK_FLAG_BITMASK_READ_ONLY\n    return block", "    return block",
          "targets"),
    Fault("ROCm's default stream is CUDA's", CORE + "sources/dlpack.pyx",
          "0 if device.device_type == kDLROCM and stream == STREAM_LEGACY_DEFAULT else stream", "stream",
          "order"),
    # ---- other processes
    Fault("a process ends before what it sent is fetched", "dlbridge/processes/descriptors.py",
          "if senders and not is_worker_of_loader():", "if False:", "sending"),
    Fault("workers of a loader wait for what nobody wants", "dlbridge/processes/descriptors.py",
          "if senders and not is_worker_of_loader():", "if senders:", "sending"),
    Fault("anybody may give a descriptor", "dlbridge/processes/descriptors.py",
          "if not secrets.compare_digest(answer, proof):", "if False:", "sending"),
    Fault("memory that could be made smaller is mapped", "dlbridge/processes/segment.pyx",
          "if not seals_of(self.descriptor) & KEEPS_ITS_SIZE or", "if", "sending"),
    Fault("memory of a GPU is sent before the work on it is done", "dlbridge/processes/device_segment.pyx",
          "        await_device(&self.mapping)", "        pass", "shared"),
    Fault("a GPU has the same number in every process", "dlbridge/processes/device_segment.pyx",
          "kDLCUDA, device_of(uuid)", "kDLCUDA, 0", "shared"),
    Fault("memory of a GPU is unmapped while it is used", CORE + "devices/mappings.pyx",
          "is_unordered(mapping) and finish(mapping, &failure)", "is_unordered(mapping)", "shared"),
    Fault("memory of a GPU is unmapped before it is filled", CORE + "devices/mappings.pyx",
          "is_done = is_done or cuda.has_finished(\n"
          "            driver, cuda.own_stream(driver, mapping.device_id, &failure), &failure)",
          "is_done = True", "shared"),
    Fault("shared memory does not change", "dlbridge/libraries/dlbridge.py",
          "lambda segment, address: segment.is_constant", "lambda segment, address: True", "shared"),
)


class FaultError(Exception):
    """Nothing is known of a fault; the text says why."""


def run_tests(tree: pathlib.Path, *arguments: str) -> str | None:
    """The first test that fails, or None."""
    environment = os.environ | {
        "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1", "DLBRIDGE_TEST_WITHOUT": "an installation"}
    # A test looks for the text of each fault, and would find every one.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "auto", *arguments,
               "--deselect", "tests/package/test_house.py::test_every_fault_can_be_seeded"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)|failed while running '(\S+)'", done.stdout, re.MULTILINE)
    if not found:
        raise FaultError(f"pytest ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return found[1] or found[2]


def build(tree: pathlib.Path) -> None:
    done = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tree,
                          env=os.environ | {"CFLAGS": "-O0"}, capture_output=True, text=True)
    if done.returncode:
        raise FaultError(f"does not compile: {done.stderr[-500:]}")


def find(tree: pathlib.Path, fault: Fault) -> str | None:
    """The test that finds a fault, or None."""
    path = tree / fault.file
    sound = path.read_text()
    if sound.count(fault.old) != 1:
        raise FaultError(f"its text stands {sound.count(fault.old)} times in {fault.file}")
    path.write_text(sound.replace(fault.old, fault.new))
    try:
        build(tree)
        files = [str(path) for name in fault.tests.split() for path in tree.glob(f"tests/*/test_{name}.py")]
        return run_tests(tree, *files) or run_tests(tree)
    finally:
        path.write_text(sound)


def main(folder: str, *names: str) -> int:
    """Seed each fault, or those of these names, and count those that nobody found."""
    tree, missed = pathlib.Path(folder).resolve(), 0
    if unknown := set(names) - {fault.name for fault in FAULTS}:
        raise SystemExit(f"there are no such faults: {', '.join(unknown)}")
    if failing := run_tests(tree):
        raise SystemExit(f"without a fault, {failing} fails: nothing would be told by its failing")
    for fault in FAULTS:
        if not names or fault.name in names:
            try:
                found = find(tree, fault)
            except FaultError as error:
                found = None
                print(f"{fault.name}: {error}")
            missed += found is None
            print(f"{fault.name}: {'found by ' + found if found else 'MISSED'}", flush=True)
    build(tree)
    return missed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
