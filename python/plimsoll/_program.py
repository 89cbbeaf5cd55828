"""The program: where it is, its arguments, its output while it runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from typing import Any, Mapping, Sequence


class PlimsollError(RuntimeError):
    """The program failed: its message, and its exit code (docs/COMMANDS.md)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def program() -> str:
    """Returns the path of the program: the environment variable PLIMSOLL, else the one in PATH."""
    path = os.environ.get("PLIMSOLL") or shutil.which("plimsoll")
    if not path:
        raise FileNotFoundError(
            "the program plimsoll is not in PATH: build and install it (make install), or name it "
            "in the environment variable PLIMSOLL")
    return path


def _text(value: Any) -> str:
    """A value as YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(str(k))}: {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_quoted(v) if isinstance(v, str) else _text(v) for v in value) + "]"
    return str(value)


def _plain(value: Any) -> str:
    """A value of a mapping: a text with characters that mean something in YAML is quoted."""
    return _quoted(value) if isinstance(value, str) and not re.fullmatch(r"[\w./+-]+", value) else _text(value)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def settings(keys: Mapping[str, Any]) -> list[str]:
    """Configuration keys as arguments of the program."""
    return [f"{name}={_text(value)}" for name, value in keys.items()]


def _message(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("plimsoll:")]
    return "\n".join(told or lines[-5:]) or "plimsoll failed without a message"


def ask(arguments: Sequence[str], accept: Sequence[int] = (0,)) -> str:
    """Runs the program and returns what it prints."""
    done = subprocess.run([program(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in accept:
        raise PlimsollError(_message(done.stderr), done.returncode)
    return done.stdout


def follow(arguments: Sequence[str]) -> None:
    """Runs the program; its progress goes to sys.stdout, line by line, as it comes.

    An interrupt is passed on: the program finishes its step and saves a checkpoint.
    """
    with subprocess.Popen([program(), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, bufsize=1) as child:
        assert child.stdout is not None
        last: list[str] = []
        interrupted = False
        while True:
            try:
                line = child.stdout.readline()
            except KeyboardInterrupt:
                interrupted = True
                child.send_signal(signal.SIGINT)
                continue
            if not line:
                break
            last = (last + [line])[-20:]
            sys.stdout.write(line)
            sys.stdout.flush()
        code = child.wait()
    if interrupted:
        raise KeyboardInterrupt
    if code:
        raise PlimsollError(_message("".join(last)), code)
