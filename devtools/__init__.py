"""What a developer's machine needs beside the connector: local servers, started and ended cleanly.

Only the standard library is used, so that `python -m devtools.localstack` runs before anything is
installed. Nothing here is part of the wheel.
"""
