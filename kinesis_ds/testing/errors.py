"""The error that the double answers."""

from __future__ import annotations


class ServiceError(Exception):
    """An error of the service, as it crosses the network.

    Attributes:
        code: Its name, for example ``ResourceNotFoundException``.
        message: Its text.
        status: The HTTP status.
    """

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
