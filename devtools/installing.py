"""Install a server's programs into `.cache/`, once for all who ask.

An installation lives in a folder named by a hash of everything it was made from, and counts only
when its stamp, written last, is there. So an interrupted one is made again, a changed pin makes a
new one beside the old, and a server that is running keeps its files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
CACHE = CHECKOUT / ".cache"

_STAMP = "installed"
_LOG_LINES = 20


class InstallError(RuntimeError):
    """A server could not be installed; the message ends with what the failing program said."""


@dataclass(frozen=True)
class Recipe:
    """A server to install, and the pinned versions to install it from.

    Attributes:
        name: the folder under `.cache/`, and what progress and errors call it.
        requirement: what is asked of pip, as on its command line; none for a server without Python.
        constraints: the committed file that pins everything that it needs.
        npm: Node packages, each `name@version`, by the folder that they go into.
        finish: one command run in the new folder, for what would slow down every start.
    """

    name: str
    requirement: str = ""
    constraints: Path | None = None
    npm: Mapping[Path, str] = field(default_factory=dict)
    finish: Sequence[str] = ()

    @property
    def home(self) -> Path:
        """Folder of everything that this server writes."""
        return CACHE / self.name

    @property
    def folder(self) -> Path:
        """Folder of this recipe's installation, whether it exists or not."""
        return self.home / self.digest

    @property
    def digest(self) -> str:
        """Hash of all pins and of the Python that makes the virtual environment."""
        made_from = [
            self.requirement,
            self.constraints.read_text() if self.constraints else "",
            *(f"{folder}={package}" for folder, package in sorted(self.npm.items())),
            *self.finish,
            sys.platform,
            os.path.realpath(sys.executable),
            sys.version,
        ]
        return hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:12]

    def install(self) -> Path:
        """Return the folder of a complete installation, making it first where it is missing.

        Blocks while another process installs the same thing, then uses what that one made.
        """
        folder = self.folder
        if (folder / _STAMP).exists():
            return folder
        with exclusive(self.home / "install.lock") as lock:
            if not (folder / _STAMP).exists():
                self._install_into(folder, lock)
        return folder

    def _install_into(self, folder: Path, lock: int) -> None:
        # Looked for first, not after a minute of pip.
        npm = _npm() if self.npm else ""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        what = self.requirement or ", ".join(self.npm.values())
        with _progress(f"installing {what}") as tell:
            run = _Runner(folder, tell, lock)
            if self.requirement:
                self._install_python(folder, run)
            for target, package in self.npm.items():
                run(
                    package,
                    *(npm, "install", "--no-audit", "--no-fund", "--no-save"),
                    *("--cache", CACHE / "npm", "--prefix", folder / target, package),
                )
            if self.finish:
                run("the last step", *self.finish)
        (folder / _STAMP).touch()

    def _install_python(self, folder: Path, run: _Runner) -> None:
        run("a virtual environment", sys.executable, "-m", "venv", folder / "venv")
        pins = ("--constraint", self.constraints) if self.constraints else ()
        run(
            "Python packages",
            *(python_of(folder), "-m", "pip", "install"),
            *("--no-input", "--disable-pip-version-check", "--cache-dir", CACHE / "pip"),
            *pins,
            *self.requirement.split(),
        )


def python_of(folder: Path) -> Path:
    """Return the Python of the virtual environment in an installation."""
    return folder / "venv" / "bin" / "python"


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Let one process of this machine at a time into the block; the others wait.

    The system drops the lock when its holder dies, so a crash never leaves one behind. The value
    is the open lock file: a child that inherits it holds the lock too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def tail(log: Path, lines: int = _LOG_LINES) -> str:
    """Return the last lines of a log, for an error message."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return "(no output)"
    return "\n".join(text.splitlines()[-lines:]) or "(no output)"


@dataclass(frozen=True)
class _Runner:
    folder: Path
    tell: Callable[[str], None]
    lock: int

    def __call__(self, what: str, *argv: str | Path) -> None:
        self.tell(what)
        log_file = self.folder / "install.log"
        with log_file.open("a") as log:
            done = subprocess.run(
                argv,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Should we be killed, pip runs on: nobody may begin anew before it has ended.
                pass_fds=[self.lock],
                check=False,
            )
        if done.returncode:
            raise InstallError(
                f"could not install {what} (exit status {done.returncode}).\n{tail(log_file)}"
            )


def _npm() -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("this server needs Node.js 18 or newer, but there is no npm on the PATH")
    return npm


@contextlib.contextmanager
def _progress(title: str) -> Iterator[Callable[[str], None]]:
    """One line on standard error, rewritten in place on a terminal, else one at each end."""
    began = time.monotonic()
    in_place = sys.stderr.isatty()

    def write(text: str, *, last: bool = False) -> None:
        end = "\n" if last or not in_place else ""
        start = "\r\x1b[K" if in_place else ""
        sys.stderr.write(f"{start}{title}: {text}{end}")
        sys.stderr.flush()

    def tell(step: str) -> None:
        if in_place:
            write(f"{step} ...")

    if not in_place:
        write("...")
    try:
        yield tell
    except BaseException:
        write(f"failed after {time.monotonic() - began:.0f} s", last=True)
        raise
    write(f"done in {time.monotonic() - began:.0f} s", last=True)
