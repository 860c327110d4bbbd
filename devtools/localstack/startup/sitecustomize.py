"""Runs first in LocalStack's own Python: two names of Python 3.11 that LocalStack 4.9.2 uses.

It declares Python 3.10 to be enough, and it is, with these.
"""

import datetime
import enum
import sys

if sys.version_info < (3, 11):

    class StrEnum(str, enum.Enum):
        """As in Python 3.11: a member prints as its value."""

        __str__ = str.__str__

    enum.StrEnum = StrEnum  # type: ignore[attr-defined]
    datetime.UTC = datetime.timezone.utc  # type: ignore[attr-defined]
