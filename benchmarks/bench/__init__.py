"""dlbridge beside each library's own converter, in one run on this machine: ``python benchmarks/run.py``.

The modules, each of which imports only from those above it:

- ``rows``: what a row is, and the names that its statements use
- ``allocators``: what the memory rows read
- ``groups``: the rows themselves
- ``measure``: the method
- ``report`` and ``chart``: goals, the table, JSON, and the chart
- ``command``: the command
"""
