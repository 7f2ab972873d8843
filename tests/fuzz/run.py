#!/usr/bin/env python3
"""Fuzz the target that FUZZ_TARGET names; the arguments are libFuzzer's, which may start this file again to merge."""

import importlib
import os
import sys

import atheris

from fuzz.harness import Input


def target_of(name):
    if name == "seeded":
        from dlbridge.seeded import four_bytes
        return four_bytes
    run = importlib.import_module(f"fuzz.{name}").run
    return lambda data: run(Input(data))


if __name__ == "__main__":
    atheris.Setup(sys.argv, target_of(os.environ["FUZZ_TARGET"]))
    atheris.Fuzz()
