"""Tools for a developer's machine: local servers that start and end cleanly, tables, pages of docs.

Only the standard library is used, so that `python -m devtools.localstack` runs before anything is
installed. Nothing here is part of the wheel.
"""
