"""Memory of a device that outlives everything, and how often the driver is called for it then."""

from fake_driver.scenes.shared import BASE, driver

import dlbridge


class Canary:
    def __del__(self):
        print(len(self.calls()), "calls")


def share():
    """A canary, and memory that goes before it does."""
    canary = Canary()
    canary.calls = driver.calls
    made = [canary, dlbridge.shared(BASE, device="cuda")]
    driver.clear()
    return made
