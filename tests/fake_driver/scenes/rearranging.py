"""A library that has kernels, and a target that lacks what they change."""

from fake_driver import kernels, xla  # noqa: F401 (libraries that dlbridge finds)
from fake_driver.producers import Stream, driver

import dlbridge

driver.make_current(0)
then = Stream(driver.value("StreamCreate", 1))
dlbridge.register_target("plain", lambda tensor: tensor)


def check_order():
    races = driver.races()
    assert races == [], races


def refused(function, error, *texts):
    try:
        function()
    except error as raised:
        assert type(raised) is error and all(text in str(raised) for text in texts), raised
        return raised
    raise AssertionError(texts)
