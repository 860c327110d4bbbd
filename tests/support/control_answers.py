"""A client of control calls that answers from a script."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError


def refused(code: str, status: int = 400) -> ClientError:
    response = {
        "Error": {"Code": code, "Message": ""},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, "Operation")  # type: ignore[arg-type]


class Answers:
    """Gives the scripted answers to any calls, repeats the last one, and notes each call.

    It replaces a connection and its client.
    """

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    @property
    def client(self) -> Any:
        return self

    def __getattr__(self, operation: str) -> Any:
        async def call(**request: Any) -> dict[str, Any]:
            self.asked.append((operation, request))
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        call.__name__ = operation
        return call
