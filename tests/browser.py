"""A page in a real browser: headless Chromium, told what to do over a pipe by its own DevTools protocol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FLAGS = "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --window-size=1400,1000"


class Page:
    """An open page: what it holds, what went wrong on it, and what it asked for."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out = into, os.fdopen(out, "rb")
        self._session: str | None = None
        self._count, self._rest = 0, b""
        #: Errors that no code of the page caught.
        self.errors: list[str] = []
        #: Addresses that were loaded.
        self.requests: list[str] = []

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Calls a method of the protocol, and waits for its end."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._into, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._count:
                assert "error" not in told, (method, told["error"])
                result: dict[str, Any] = told["result"]
                return result
            if told.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(told["params"]["exceptionDetails"])[:500])
            if told.get("method") == "Network.requestWillBeSent":
                self.requests.append(told["params"]["request"]["url"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._out.fileno(), 1 << 16)
            assert read, "the browser ended"
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(text)
        return told

    def open(self, path: Path, fragment: str = "") -> None:
        """Opens a file, and waits until it is loaded."""
        if self._session is None:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Runtime", "Network", "Page"):
                self.call(f"{domain}.enable")
        self.call("Page.navigate", url=f"{path.resolve().as_uri()}{fragment}")
        loaded = "document.readyState === 'complete' ? done() : addEventListener('load', done)"
        self.value(f"new Promise((done) => {loaded})")

    def value(self, expression: str) -> Any:
        """The value of an expression on the page, once it is there."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def point(self, x: float, y: float, click: bool = False) -> None:
        """Moves the pointer to a place of the window, and clicks there."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def chromium() -> str:
    """The browser; where there is none, the test is skipped, but fails where CI runs."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    reason = "no browser: the page is tested in Chromium (on Debian: apt-get install chromium)"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A browser with a profile of its own, without a page yet."""
    program = chromium()
    (theirs, into), (out, back) = os.pipe(), os.pipe()
    flags = f"{_FLAGS} --user-data-dir='{profile}' --remote-debugging-pipe"
    process = subprocess.Popen(
        ["bash", "-c", f"exec '{program}' {flags} about:blank 3<&{theirs} 4>&{back}"],
        pass_fds=(theirs, back),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    os.close(back)
    try:
        yield Page(into, out)
    finally:
        os.close(into)
        process.terminate()
        process.wait()
