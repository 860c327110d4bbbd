"""What the double answers instead of a result."""

from __future__ import annotations


class ServiceError(Exception):
    """An error of the service, as it crosses the network.

    Attributes:
        code: For example ``ResourceNotFoundException``.
        message: The service's words.
        status: HTTP status.
    """

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
