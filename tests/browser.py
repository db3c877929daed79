"""A real browser for tests: Chromium without a window, spoken to through a pipe.

A test that needs it is skipped where there is none, unless `RELVAL_BROWSER=required`.
"""

import base64
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Page:
    """A page in a browser; a call of it is one of Chromium's own protocol."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def show(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        """Sets the window's size, and whether the user likes it dark."""
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = "dark" if dark else "light"
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self("Emulation.setEmulatedMedia", features=[feature])

    def open(self, path: Path) -> None:
        """Opens a file, and waits until it is there."""
        self("Page.navigate", url=path.resolve().as_uri())
        self.browser.wait_for("Page.loadEventFired", self.session)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, *, pressed: bool = False) -> None:
        """A movement, press or release of the mouse: `mouseMoved` and the like."""
        button: dict[str, Any] = (
            {"button": "left", "buttons": 1, "clickCount": 1} if pressed else {}
        )
        self("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Takes a screenshot."""
        shot = self("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings so far, as the console has them, and exceptions."""
        found = []
        for event in self.browser.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            if event["method"] == "Log.entryAdded":
                found.append(params["entry"]["text"])
            if event["method"] == "Runtime.consoleAPICalled" and params["type"] != "log":
                found.append(json.dumps(params["args"]))
        return found

    @property
    def requests(self) -> list[str]:
        """The addresses that were asked for beside files and data in the page."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("file:", "data:", "blob:"))]


class Browser:
    """A Chromium process."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, write = os.pipe()
        read, to_write = os.pipe()
        self.process = subprocess.Popen(
            [
                *("bash", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}', program),
                *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--no-first-run", "--disable-background-networking", "--hide-scrollbars"),
                *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.outgoing, self.incoming = os.fdopen(write, "wb"), os.fdopen(read, "rb")
        self.numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        self.rest = b""

    def page(self) -> Page:
        """A new page."""
        target = self.call("Target.createTarget", None, url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", None, targetId=target, flatten=True)
        return Page(self, attached["sessionId"])

    def call(self, method: str, session: str | None, **params: Any) -> dict[str, Any]:
        """Asks for something, and waits for the answer."""
        number = next(self.numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        self.outgoing.write(json.dumps(message).encode() + b"\0")
        self.outgoing.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def wait_for(self, method: str, session: str) -> None:
        """Waits for an event."""
        while True:
            event = self._receive()
            if event.get("method") == method and event.get("sessionId") == session:
                return

    def close(self) -> None:
        """Ends the process."""
        self.process.terminate()
        self.process.wait(timeout=20)
        self.outgoing.close()
        self.incoming.close()

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            some = os.read(self.incoming.fileno(), 1 << 16)
            if not some:
                raise EOFError("the browser has ended")
            self.rest += some
        text, _, self.rest = self.rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser, if there is one."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        message = "needs Chromium: install your system's package `chromium`"
        if os.environ.get("RELVAL_BROWSER") == "required":
            pytest.fail(message)
        pytest.skip(message)
    started = Browser(program, profile)
    try:
        yield started
    finally:
        started.close()
