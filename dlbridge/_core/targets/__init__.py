"""The targets: a file for each way of delivering, whose ``prepare(target)`` sets how a library's arrays are made."""
