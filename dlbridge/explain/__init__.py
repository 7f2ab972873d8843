"""explain(): the plan of a conversion, for people."""

import math
from typing import Any, NamedTuple

from dlbridge._core.dtypes import TABLE
from dlbridge._core.late import load_module
from dlbridge.errors import DLBridgeError, full_name, shown

NO_LEAVES: dict[str, "Plan"] = {}


class Plan(NamedTuple):
    """What :func:`dlbridge.convert` would do with the same arguments, and why.

    Attributes
    ----------
    action : str
        ``"return"`` (src itself), ``"share"``, ``"copy"`` or ``"refuse"``.
    source, protocol : str
        The type of src, and the protocol by which it was read.
    target : str
        The target's name.
    reason, hint : str
        Why the memory is not simply shared, and what would change that; empty where there is nothing to say.
    dtype, device : str
    shape, strides : tuple of int or None
        None where src was not looked into. ``strides_unit`` is "elements", or "bytes" where a stride is not a multiple
        of the item size.
    nbytes : int
    readonly : bool
    steps : tuple of str
        What is done with the memory, in order, each with who does it; empty if nothing is done. Memory of a device that
        is shared may still have one, the order of the streams.
    leaves : dict of str to Plan
        Of an array that is several arrays, such as a sparse one: the plan of each of them, by its name. Of a container,
        which :func:`dlbridge.convert` refuses: the plan of each of its arrays, and of each column of its tables, as
        :func:`dlbridge.convert_tree` takes them, by what is written to get it. Those are left out that would have to be
        read for that: of files, of streams, and of what a function takes apart.
    """

    action: str
    source: str
    target: str
    protocol: str = ""
    reason: str = ""
    hint: str = ""
    dtype: str = ""
    device: str = ""
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    strides_unit: str = "elements"
    nbytes: int = 0
    readonly: bool = False
    steps: tuple[str, ...] = ()
    leaves: dict[str, "Plan"] = NO_LEAVES

    def __hash__(self) -> int:
        return hash(self[:-1])

    def __str__(self) -> str:
        lines = [f"{self.source} -> {self.target}: {self.action}"]
        if self.protocol:
            access = "read-only" if self.readonly else "writable"
            lines += [
                f"  source   by {self.protocol}",
                f"  memory   {self.dtype} {self.shape}, {self.nbytes} bytes, {access}, on {self.device}",
                f"  strides  {self.strides} in {self.strides_unit}",
            ]
        lines += [f"  because  {self.reason}"] if self.reason else []
        lines += [f"  steps    {', '.join(self.steps)}"] if self.steps else []
        lines += [f"  hint     {self.hint}"] if self.hint else []
        word = "part" if self.shape is not None else "leaf"
        lines += [f"  {word}     {path}: {plan.in_a_line()}" for path, plan in self.leaves.items()]
        return "\n".join(lines)

    def in_a_line(self) -> str:
        """The action, the memory and the reason."""
        memory = f" {self.dtype} {self.shape}, {self.nbytes} bytes" if self.protocol else ""
        return f"{self.action}{memory}{', because ' if self.reason else ''}{self.reason}"

    def _repr_html_(self) -> str:
        picture = load_module("dlbridge.explain.picture")       # with the first picture
        memory = None
        if self.shape is not None and self.strides is not None:
            value_bits = next(bits * lanes for name, _, bits, lanes, *_ in TABLE if name == self.dtype)
            item_bits = -(-value_bits // 8) * 8
            if self.nbytes * 8 != item_bits * math.prod(self.shape):
                item_bits = value_bits          # packed
            step_bits = 8 if self.strides_unit == "bytes" else item_bits
            memory = picture.Memory(self.shape, self.strides, step_bits, item_bits, value_bits, self.dtype, self.device,
                                    self.nbytes, self.readonly)
        return str(picture.of_plan(
            self.action, self.source, self.protocol, self.target, self.reason, self.hint, memory,
            {path: plan.in_a_line() for path, plan in self.leaves.items()}))


def explain(
    src: object, to: object, *, device: Any = None, copy: bool | None = None, stream: Any = None,
    readonly: Any = "copy", detach: bool = False, narrow: bool = False, order: Any = None,
    dtype: Any = None, shape: Any = None, out: Any = None,
) -> Plan:
    """Say what ``convert(src, to, …)`` would do, without doing it.

    Nothing is copied, a capsule is looked at and not consumed, and a producer is asked as ``convert`` would ask it,
    so the two cannot disagree. The values are not looked at, so ``narrow`` may still find one that does not fit. An
    Arrow stream has to be read for that: an object that gives its stream only once cannot be converted afterwards.

    Parameters
    ----------
    src, to, device, copy, stream, readonly, detach, narrow, order, dtype, shape, out
        As for :func:`dlbridge.convert`.

    Returns
    -------
    Plan
        It prints as a few lines of text. A conversion that ``convert`` would refuse with one of dlbridge's errors has
        the action ``"refuse"``; what a producer itself raises passes through. Of a container it has the plans of the
        arrays in it.

    Raises
    ------
    TypeError, ValueError
        A keyword has a value that it does not take.

    Examples
    --------
    >>> import numpy, dlbridge
    >>> print(dlbridge.explain(numpy.zeros((2, 3), ">f4"), "dlbridge"))
    numpy.ndarray -> dlbridge: copy
      source   by numpy
      memory   float32 (2, 3), 24 bytes, writable, on cpu
      strides  (3, 1) in elements
      because  byte order is not this machine's, and dlbridge has no other
      steps    copy (dlbridge)
      hint     pass x.astype(x.dtype.newbyteorder("=")), which copies once
    """
    examine = load_module("dlbridge.explain.examine").examine       # with the first plan
    others = {"device": device, "stream": stream, "readonly": readonly, "detach": detach, "narrow": narrow,
              "order": order, "dtype": dtype, "shape": shape, "out": out}
    facts: dict[str, Any] = {"source": shown(type(src), full_name), "target": shown(to, str), "leaves": {}}
    try:
        given_copy = examine(facts, src, to, copy=copy, **others)
        if "parts" in facts:
            return Plan(**facts | plan_of_parts(facts["target"], *facts.pop("parts"), copy=copy, **others))
        if copy is None and given_copy and explain(src, to, copy=False, **others).action == "share":
            facts["hint"] = "pass copy=False to share it"
        if facts["action"] != "return" and (about := about_values(src, facts["target"])):
            facts["hint"] = f"{facts['hint']}; {about}" if facts.get("hint") else about
    except DLBridgeError as error:
        facts |= {"action": "refuse", "reason": error.reason, "hint": error.hint}
        if error.stage == "source" and dtype is None and shape is None and out is None:
            facts["leaves"] = plans_of_leaves(src, to, device=device, copy=copy, stream=stream, readonly=readonly,
                                              detach=detach, narrow=narrow, order=order)
    return Plan(**facts)


def plan_of_parts(
    target: str, to: str, parts: list[tuple[str, object, str]] | None, **keywords: Any,
) -> dict[str, Any]:
    """What is done with each part of an array that is several arrays, and with the whole.

    It is returned where there are no parts, and copied by its own library where they are None.
    """
    if parts is None:
        return {"action": "copy", "reason": "copy was asked for", "hint": "pass copy=None"}
    if not parts:
        return {"action": "return", "reason": f"src is of {target}'s own type already"}
    plans: dict[str, Plan] = {}
    for name, array, becomes in parts:
        plan = explain(array, to, **{**keywords, "readonly": "share"} if becomes else keywords)
        if plan.action == "return":         # of the part; the whole is another one
            plan = explain(array, "dlbridge", detach=True, readonly="share")._replace(
                target=plan.target, action="share", reason="", hint="", steps=())
        is_refused = plan.action == "refuse" and name == parts[0][0]        # the elements; of indices that is mended
        plans[name] = plan._replace(action="copy", reason=becomes, hint="") if becomes and not is_refused else plan
    changed = [plan for each in ("refuse", "copy") for plan in plans.values() if plan.action == each]
    action = changed[0].action if changed else "share"
    because = changed[0].reason if changed else ""
    of = ", ".join(name for name, plan in plans.items() if because and plan.reason == because)
    return {"action": action, "leaves": plans, "reason": f"of {of}: {because}" if of else ""}


def plans_of_leaves(src: object, to: object, **keywords: Any) -> dict[str, Plan]:
    try:
        arrays = list(load_module("dlbridge.trees.leaves").arrays_in(src))
    except MemoryError:
        raise
    except Exception:               # a container that is in itself, or whose attributes raise
        return {}
    return {path: explain(array, to, **keywords) for path, array in arrays if path}


def about_values(src: object, target: str) -> str:
    """What is known of the values of such an array where they are not what they seem; its own library knows it."""
    known = load_module("dlbridge.libraries.library").Facts(type(src))
    tell = known.about_values
    return "" if tell is None or any(library.name == target for library, _ in known.records) else str(tell(src))
