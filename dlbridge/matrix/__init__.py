"""``dlbridge matrix``: arrays of every library into every other, each pair in a process of its own.

The modules, each of which imports only from those above it:

- ``mistakes`` and ``cells``: the user's errors; what is found out about a pair, and about all of them
- ``rows``: the libraries
- ``children``: functions that run in processes of their own
- ``pair``: what such a process does with one pair
- ``progress``: the line that says how far the measurement is
- ``measure``: all pairs
- ``report`` and ``page``: the matrix as text, as JSON and as HTML
- ``command``: ``dlbridge matrix``; beside it ``info`` for ``dlbridge info``, and ``arrays`` for ``dlbridge explain``
"""
