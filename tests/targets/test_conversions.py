"""Every exporter and every importer, by each property that a conversion has to keep.

That values arrive as they are is proved here, and by test_copies.py for what is copied.
"""

import contextlib
import gc
import itertools
import sys
import weakref
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support import optional
from support.exporters import ALIGNMENT, EXPORTERS, Exporter, numbered
from support.importers import IMPORTERS, CapsuleProducer, capsule_name, deliver, look_numpy, look_torch, read_bits
from support.optional import marked, params, product

import dlbridge

pytestmark = pytest.mark.quick

# Writable and read-only; rather one that needs no library, so that all of them are there with NumPy alone.
ONE_OF_EACH_PROTOCOL = {(exporter.protocol, exporter.readonly): exporter for exporter in sorted(
    EXPORTERS, key=lambda exporter: not exporter.needs)}.values()


def pairs(accepts=lambda exporter, importer: True):
    """Every exporter into NumPy, torch and JAX, and one of each protocol into the others."""
    return [marked((exporter, importer), id=f"{exporter.name}-{importer.name}")
            for exporter in EXPORTERS for importer in IMPORTERS if accepts(exporter, importer)
            and (optional.FULL or importer.name in ("numpy", "torch", "jax") or exporter in ONE_OF_EACH_PROTOCOL)]


def partners():
    """Every exporter with an importer, and one exporter of each protocol with all of them."""
    found = dict.fromkeys([*product(EXPORTERS, IMPORTERS), *itertools.product(ONE_OF_EACH_PROTOCOL, IMPORTERS)])
    return [marked(pair, id=f"{pair[0].name}-{pair[1].name}") for pair in found]


each_pair = pytest.mark.parametrize(("exporter", "importer"), pairs())
each_read_only_pair = pytest.mark.parametrize(("exporter", "importer"), pairs(lambda e, i: e.readonly))
each_with_a_partner = pytest.mark.parametrize(("exporter", "importer"), partners())


class Case(NamedTuple):
    """An object to convert, and what is known about its memory."""

    src: Any
    bits: bytes
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    address: int | None
    root: np.ndarray            # the array that owns the elements

    def read(self):
        """The elements as they are in memory now; None where they cannot be seen."""
        if self.address is None:
            return None
        return read_bits(self.address, self.shape, self.strides, np.dtype(self.dtype).itemsize)


def make(exporter: Exporter, stack: contextlib.ExitStack) -> Case:
    elements = numbered(exporter.shape, exporter.dtype)
    root = elements.base
    seen = elements[::exporter.step] if exporter.step > 1 else elements
    bits, shape, strides = seen.tobytes(), seen.shape, seen.strides
    src = exporter.make(elements, stack)
    address = elements.ctypes.data if exporter.address is None else exporter.address(src)
    return Case(src, bits, shape, exporter.dtype, strides, None if exporter.unseen else address, root)


@pytest.fixture
def stack():
    """Closed last, when the results are gone."""
    with contextlib.ExitStack() as stack:
        yield stack


def is_shared(exporter, importer, case, readonly="copy"):
    """Whether the contract promises shared memory."""
    if exporter.readonly and not importer.told and readonly == "copy":
        return exporter.library == importer.library      # the object itself
    if importer.immutable and (not exporter.readonly or exporter.written) and readonly == "copy":
        return exporter.library == importer.library
    if importer.dense and exporter.step > 1:
        return False
    return case.address is not None and case.address % importer.alignment == 0


def keywords_of(exporter, **keywords):
    return keywords | {"detach": True} if exporter.detach else keywords


# ---- what the result is ----------------------------------------------------------------------------------------------

@each_pair
def test_result_is_the_same_array(exporter, importer, stack):
    case = make(exporter, stack)
    result = deliver(importer, case.src, **keywords_of(exporter))
    view = importer.look(result)
    assert (view.bits, view.shape, view.dtype) == (case.bits, case.shape, case.dtype)
    if is_shared(exporter, importer, case):
        assert view.address == case.address
        assert view.strides is None or view.strides == case.strides
    elif case.address is not None:
        assert view.address != case.address
    if exporter.readonly and view.writable:
        assert view.address != case.address
    if importer.told and not exporter.readonly and importer.library != "jax":
        assert view.writable
    if exporter.library == importer.library:
        assert result is case.src
    del result
    assert case.read() in (case.bits, None)


@each_with_a_partner
def test_copy_true_is_new_writable_and_aligned(exporter, importer, stack):
    case = make(exporter, stack)
    result = deliver(importer, case.src, **keywords_of(exporter, copy=True))
    view = importer.look(result)
    assert (view.bits, view.shape, view.dtype) == (case.bits, case.shape, case.dtype)
    assert view.address != case.address
    assert view.address % ALIGNMENT == 0
    assert view.writable or importer.library == "jax"
    assert case.read() in (case.bits, None)


@each_pair
def test_copy_false_shares_or_says_why_not(exporter, importer, stack):
    case = make(exporter, stack)
    if is_shared(exporter, importer, case) or (case.address is None and importer.told and importer.alignment == 1):
        view = importer.look(deliver(importer, case.src, **keywords_of(exporter, copy=False)))
        assert case.address in (view.address, None)
        assert view.bits == case.bits
    elif case.address is not None:
        with pytest.raises(dlbridge.CopyRequiredError, match=r"readonly|writable|aligned|holes"):
            deliver(importer, case.src, **keywords_of(exporter, copy=False))


# ---- read-only memory ------------------------------------------------------------------------------------------------

@each_read_only_pair
def test_readonly_share_shares(exporter, importer, stack):
    case = make(exporter, stack)
    result = (dlbridge.to_dlpack(case.src, readonly="share") if importer.name == "dlpack"
              else deliver(importer, case.src, readonly="share"))
    view = importer.look(result)
    assert view.bits == case.bits
    if case.address is not None and case.address % importer.alignment == 0:
        assert view.address == case.address
    assert view.writable is not importer.told


@each_read_only_pair
def test_readonly_error_refuses_where_the_consumer_cannot_be_told(exporter, importer, stack):
    case = make(exporter, stack)
    if importer.told and not (importer.library == "jax" and exporter.written):
        assert importer.look(deliver(importer, case.src, readonly="error")).bits == case.bits
    else:
        with pytest.raises(dlbridge.ConversionError, match='readonly "error"'):
            deliver(importer, case.src, readonly="error")


# ---- lifetime --------------------------------------------------------------------------------------------------------

def settle():
    """JAX lets go of memory when its own references are collected."""
    gc.collect()


@pytest.mark.parametrize(("exporter", "importer"), pairs(lambda e, i: e.keeps))
def test_memory_is_held_until_the_result_is_gone(exporter, importer, stack):
    case = make(exporter, stack)
    shared, bits = is_shared(exporter, importer, case), case.bits
    itself = exporter.library == importer.library
    result = deliver(importer, case.src, **keywords_of(exporter))
    if exporter.keeps == "count":
        src = case.src
        del case
        held = sys.getrefcount(src)
        assert importer.look(result).bits == bits
        del result
        settle()
        # A copy holds nothing, so nothing is let go with it.
        assert (held > sys.getrefcount(src)) is (shared or itself)
        return
    root = weakref.ref(case.root)
    del case
    settle()
    assert (root() is not None) is shared
    assert importer.look(result).bits == bits
    del result
    settle()
    assert root() is None


@each_with_a_partner
def test_source_can_be_converted_again_and_again(exporter, importer, stack):
    case = make(exporter, stack)
    if exporter.once:
        deliver(importer, case.src)
        with pytest.raises(dlbridge.ConversionError, match="was consumed already"):
            deliver(importer, case.src)
        return
    results = [deliver(importer, case.src, **keywords_of(exporter)) for _ in range(3)]
    assert [importer.look(result).bits for result in results] == [case.bits] * 3
    del results[1]
    assert importer.look(results[0]).bits == importer.look(results[1]).bits == case.bits


# ---- capsules in other hands -----------------------------------------------------------------------------------------

@pytest.mark.needs("torch")
@pytest.mark.parametrize("exporter", params(EXPORTERS), ids=lambda exporter: exporter.name)
@pytest.mark.parametrize("versioned", [False, True], ids=["legacy", "versioned"])
def test_capsules_are_read_by_numpy_and_torch(exporter, versioned, stack):
    for read, look in ((np.from_dlpack, look_numpy), (torch.from_dlpack, look_torch)):
        case = make(exporter, stack)
        src = case.src.detach() if exporter.detach else case.src
        capsule = dlbridge.to_dlpack(src, max_version=(1, 3) if versioned else None)
        assert capsule_name(capsule) == ("dltensor_versioned" if versioned else "dltensor")
        view = look(read(CapsuleProducer(capsule)))
        assert (view.bits, view.shape, view.dtype) == (case.bits, case.shape, case.dtype)
        assert capsule_name(capsule) == ("used_dltensor_versioned" if versioned else "used_dltensor")
        if exporter.readonly and not versioned:
            assert view.address != case.address


# ---- the plan --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("exporter", "importer"), pairs(lambda e, i: i.via is None))
def test_explain_agrees_with_convert(exporter, importer, stack):
    case = make(exporter, stack)
    keywords = keywords_of(exporter)
    plan = dlbridge.explain(case.src, importer.to, **keywords)
    result = deliver(importer, case.src, **keywords)
    view = importer.look(result)
    expected = "return" if result is case.src else "share" if is_shared(exporter, importer, case) else "copy"
    if case.address is not None:
        assert plan.action == expected
    if plan.action != "return":
        assert (plan.protocol, plan.shape, plan.dtype) == (exporter.protocol, view.shape, view.dtype)


@pytest.mark.needs("torch", "jax")
@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_a_namespace_of_array_api_compat_is_its_library(name):
    """SciPy, which JAX brings, has a copy of that package, in ``_external`` since 1.18."""
    folder, = (path.parent.name for path in Path(import_module("scipy").__file__).parent.glob("*/array_api_compat"))
    namespace = import_module(f"scipy.{folder}.array_api_compat.{name}")
    source = np.arange(6, dtype="f4").reshape(2, 3)[::-1]
    for same in (
        dlbridge.convert(source, namespace), dlbridge.convert(dlbridge.asdlpack(source), to=namespace),
        dlbridge.convert_tree([source], namespace)[0], dlbridge.accepts(namespace)(lambda x: x)(source),
    ):
        assert type(same) is type(dlbridge.convert(source, name))
        assert np.array_equal(same, source)
    plan = dlbridge.explain(source, namespace)
    assert (plan.target, plan.action) == (name, dlbridge.explain(source, name).action)
    own = dlbridge.convert(source, name)
    assert dlbridge.convert(own, namespace) is own
