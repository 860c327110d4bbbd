"""A double of AWS STS on 127.0.0.1: AssumeRole, with lives as short as a test wants them.

``integration/test_roles.py`` asks it and LocalStack's STS the same questions, so that both answer
alike. To a GET it answers with credentials, as the agent of a container does.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.testing import KinesisServer

_SESSION_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
_ROLE = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role/.+")
_SIGNED = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/(\w+)/")
_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


@dataclass(frozen=True)
class Asked:
    """A call of AssumeRole as it was received.

    Attributes:
        role, session_name, external_id: The parameters of the call.
        access_key, token, region: The credentials and the region of its signature.
    """

    role: str
    session_name: str
    external_id: str
    access_key: str
    token: str
    region: str


class StsDouble:
    """An STS that gives any role to anybody. Use as a context manager; thread-safe.

    Args:
        kinesis: The double whose sessions end when the credentials do. They are issued in the
            machine's time, whatever time that one lives in.
        now: The machine's time, seconds since the epoch.

    Attributes:
        asked: All calls, including those that were refused.
        issued: The ids of the access keys issued.
        life_s: The lifetime of the next credentials, in seconds.
        refusal: Status, code and message of the error that calls get instead; None to answer them.
        answers: An event. Calls wait until it is set.
    """

    def __init__(
        self, kinesis: KinesisServer | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self.asked: list[Asked] = []
        self.issued: list[str] = []
        self.life_s = 3600.0
        self.refusal: tuple[int, str, str] | None = None
        self.answers = threading.Event()
        self.answers.set()
        self._kinesis = kinesis
        self._now = now
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> StsDouble:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.answers.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, authorization: str, token: str, body: str) -> tuple[int, str]:
        """Return status and body of the answer to a request."""
        form = {name: values[0] for name, values in parse_qs(body).items()}
        signed = _SIGNED.search(authorization)
        access_key, region, service = signed.groups() if signed else ("", "", "")
        role, name = form.get("RoleArn", ""), form.get("RoleSessionName", "")
        with self._lock:
            self.asked.append(
                Asked(role, name, form.get("ExternalId", ""), access_key, token, region)
            )
        self.answers.wait()
        if self.refusal is not None:
            status, code, message = self.refusal
            return status, _error(code, message)
        if form.get("Action") != "AssumeRole" or service != "sts":
            return 400, _error("InvalidAction", "Only AssumeRole is known here.")
        if not _ROLE.fullmatch(role):
            return 400, _error("ValidationError", f"{role} is invalid")
        if not _SESSION_NAME.fullmatch(name):
            return 400, _error("ValidationError", f"Value '{name}' at 'roleSessionName' failed")
        return 200, self._assumed(role, name)

    def container(self) -> str:
        """Return the answer of a container's agent."""
        access_key, expires = self._issue()
        return json.dumps(
            {
                "AccessKeyId": access_key,
                "SecretAccessKey": f"SecretOf{access_key}",
                "Token": f"TokenOf{access_key}",
                "Expiration": expires,
            }
        )

    def _issue(self) -> tuple[str, str]:
        """Issue an access key; return it and the time when it expires."""
        ends = self._now() + self.life_s
        with self._lock:
            access_key = f"ASIADOUBLE{len(self.issued):010d}"
            self.issued.append(access_key)
        if self._kinesis is not None:
            clock = self._kinesis.clock
            # As much earlier or later there as its time is faster.
            speed = getattr(clock, "speed", 1.0)
            self._kinesis.end_session(access_key, clock.wall() + self.life_s * speed)
        expires = datetime.fromtimestamp(ends, timezone.utc).isoformat(timespec="milliseconds")
        return access_key, expires.replace("+00:00", "Z")

    def _assumed(self, role: str, name: str) -> str:
        access_key, expires = self._issue()
        account, _, role_name = role.removeprefix("arn:aws:iam::").partition(":role/")
        return (
            f'<AssumeRoleResponse xmlns="{_NAMESPACE}"><AssumeRoleResult><Credentials>'
            f"<AccessKeyId>{access_key}</AccessKeyId>"
            f"<SecretAccessKey>SecretOf{access_key}</SecretAccessKey>"
            f"<SessionToken>TokenOf{access_key}</SessionToken>"
            f"<Expiration>{expires}</Expiration></Credentials>"
            f"<AssumedRoleUser><AssumedRoleId>AROADOUBLE:{name}</AssumedRoleId>"
            f"<Arn>arn:aws:sts::{account}:assumed-role/{role_name}/{name}</Arn></AssumedRoleUser>"
            "</AssumeRoleResult></AssumeRoleResponse>"
        )


def _error(code: str, message: str) -> str:
    return (
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>Sender</Type><Code>{code}</Code>'
        f"<Message>{escape(message)}</Message></Error></ErrorResponse>"
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing when a client is gone."""


def _handler(sts: StsDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            token = self.headers.get("X-Amz-Security-Token", "")
            status, answer = sts.answer(self.headers["Authorization"] or "", token, body)
            self._send(status, "text/xml", answer.encode())

        def do_GET(self) -> None:
            self._send(200, "application/json", sts.container().encode())

        def _send(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Log nothing."""

    return Handler
