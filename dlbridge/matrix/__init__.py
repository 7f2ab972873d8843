"""``dlbridge matrix``: arrays of every library into every other, each pair in a process of its own.

The modules, each of which imports only from those above it:

- ``terminal``: what the commands print, and the user's errors
- ``rows``: the libraries, each with how it makes an array and reads one
- ``children``: functions that run in processes of their own
- ``pair``: what such a process does with one pair, and what is found out about a pair and about all of them
- ``report`` and ``page``: the matrix as text, as JSON and as HTML
- ``measure``: ``dlbridge matrix``; beside it ``info`` for ``dlbridge info``, and ``arrays`` for ``dlbridge explain``
"""
