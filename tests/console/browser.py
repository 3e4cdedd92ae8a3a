"""A headless Chromium, controlled by the Chrome DevTools Protocol over a WebSocket.

Input goes through the browser: the mouse clicks at an element's position, keys go to the focused element.
Conditions are polled in the page.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

WAIT_TIMEOUT: Final = 60.0
"""Seconds to wait for a condition."""

_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--remote-debugging-port=0", "--force-color-profile=srgb"),
    # Foreign host names that resolve to this machine.
    "--host-resolver-rules=MAP *.evil.example 127.0.0.1",
)
_LISTENS: Final = re.compile(rb"DevTools listening on (ws://\S+)")
# Makes an element visible, guards its click, and gives its center.
_AIM: Final = """one => {
    if (!one) return;
    one.scrollIntoView({block: 'nearest'});
    window.aim?.abort();
    window.aim = new AbortController();
    window.missed = false;
    window.addEventListener('click', event => {
        window.missed = !one.contains(event.target);
        if (window.missed) { event.preventDefault(); event.stopImmediatePropagation(); }
    }, {capture: true, once: true, signal: window.aim.signal});
    const box = one.getBoundingClientRect();
    return {x: box.x + box.width / 2, y: box.y + box.height / 2};
}"""
_KEYS: Final = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowDown": (40, ""), "ArrowRight": (39, "")}


def find() -> str:
    """Returns the path of Chromium, from `CHROMIUM` if set; empty if there is none."""
    named = os.environ.get("CHROMIUM", "")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next(filter(None, map(shutil.which, names)), "")


@contextmanager
def launched(program: str, profile: Path) -> Iterator[str]:
    """Runs a browser with an empty profile. Yields its DevTools address."""
    # If setpriv is installed, the browser ends with this process.
    wrapper = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [*wrapper, program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            data = b""
            while (listens := _LISTENS.search(data)) is None:
                line = process.stderr.readline()
                assert line, f"{program} ended: {data.decode(errors='replace')}"
                data += line
            yield listens[1].decode()
        finally:
            process.kill()


class BrowserError(Exception):
    """The browser rejected a command, or a script in the page failed."""


class Page:
    """One page with its own storage."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._session = ""
        self._loaded = asyncio.Event()
        self.errors: list[str] = []
        """Exceptions and policy violations in the page. HTTP errors are not included."""

    async def command(self, method: str, **params: Any) -> Any:
        """Sends a command to the browser and returns its result."""
        number = len(self._waiting) + 1
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        values = {"id": number, "method": method, "params": params}
        await self._socket.send_json({**values, **({"sessionId": self._session} if self._session else {})})
        return await asyncio.wait_for(answer, WAIT_TIMEOUT)

    async def open(self) -> None:
        """Creates the page, which ends with the connection. `receive` must be running."""
        context = (await self.command("Target.createBrowserContext", disposeOnDetach=True))["browserContextId"]
        target = await self.command("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM", "Network"):
            await self.command(f"{domain}.enable")
        await self.view(1280, 800)

    async def receive(self) -> None:
        """Receives messages of the browser."""
        async for message in self._socket:
            reply = json.loads(message.data)
            if "id" in reply:
                answer = self._waiting[reply["id"]]
                if answer.done():
                    continue
                if "error" in reply:
                    answer.set_exception(BrowserError(reply["error"]["message"]))
                else:
                    answer.set_result(reply["result"])
                continue
            match reply["method"], reply["params"]:
                case "Page.loadEventFired", _:
                    self._loaded.set()
                case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                    self.errors.append(details.get("exception", {}).get("description") or details["text"])
                case "Log.entryAdded", {"entry": entry} if entry["level"] == "error" and entry["source"] != "network":
                    self.errors.append(entry["text"])

    # ---- navigation and appearance

    async def go(self, url: str) -> None:
        """Opens an address and waits until the page is loaded."""
        self._loaded.clear()
        await self.command("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), WAIT_TIMEOUT)

    async def reload(self) -> None:
        """Reloads the page."""
        self._loaded.clear()
        await self.command("Page.reload")
        await asyncio.wait_for(self._loaded.wait(), WAIT_TIMEOUT)

    async def view(self, width: int, height: int, *, scale: float = 1) -> None:
        """Sets the size of the window, in CSS pixels."""
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    async def prefer(self, colors: str) -> None:
        """Sets the system's color scheme: `light` or `dark`."""
        await self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colors}])

    async def picture(self) -> bytes:
        """Returns a screenshot as WebP."""
        return base64.b64decode((await self.command("Page.captureScreenshot", format="webp", quality=80))["data"])

    # ---- content

    async def run(self, script: str) -> Any:
        """Returns the value of an expression, which may be a promise. Raises BrowserError."""
        done = await self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return done["result"].get("value")

    async def until(self, condition: str) -> Any:
        """Waits until an expression is true and returns its value. The expression may throw before."""
        script = (
            "new Promise(done => { const look = () => { let value; try { value = (" + condition + "); } catch { } "
            "value ? done(value) : setTimeout(look, 15); }; look(); })"
        )
        try:
            async with asyncio.timeout(WAIT_TIMEOUT):
                while True:
                    try:
                        return await self.run(script)
                    except BrowserError as error:  # the page was navigated in between
                        if "context" not in str(error) and "navigated" not in str(error):
                            raise
        except TimeoutError:
            shown = await self.run("document.body.innerText")
            raise AssertionError(f"never came: {condition}\nthe page:\n{shown}\nerrors: {self.errors}") from None

    async def becomes(self, script: str, expected: object, about: object = "") -> None:
        """Waits until an expression has this value, with the keys of objects in this order.

        Raises AssertionError with the value at the end, and what the value is about.
        """
        text = json.dumps(expected, separators=(",", ":"), ensure_ascii=False)
        try:
            await self.until(f"JSON.stringify({script}) === {json.dumps(text)}")
        except AssertionError as error:
            raise AssertionError(f"{script} is {await self.run(script)!r} {about}\n{error}") from None

    async def see(self, text: str, within: str = "body") -> None:
        """Waits until a text is shown."""
        await self.until(f"document.querySelector({json.dumps(within)}).innerText.includes({json.dumps(text)})")

    async def text(self, selector: str) -> str:
        """Waits for the first matching element and returns its text."""
        found = await self.until(f"document.querySelector({json.dumps(selector)}) && [{_first(selector)}.innerText]")
        return str(found[0])

    # ---- user input

    async def click(self, selector: str, text: str = "") -> None:
        """Waits for the first matching element with the text and clicks its center.

        An update of the page can move the element before the click arrives: what is there instead does not get the
        click, and the element is looked for again.
        """
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})].find(one => "
            f"one.checkVisibility() && !one.disabled && one.innerText.includes({json.dumps(text)}))"
        )
        missed = True
        while missed:
            box = await self.until(f"({_AIM})({found})")
            for kind in ("mousePressed", "mouseReleased"):
                await self.command("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **box)
            (missed,) = await self.until("[window.missed]")  # None of a page that the click has opened

    async def type(self, selector: str, text: str) -> None:
        """Replaces the text of a field."""
        await self.until(f"(one => one && (one.focus(), one.select(), true))({_first(selector)})")
        await self.command("Input.insertText", text=text)

    async def choose(self, selector: str, value: str) -> None:
        """Waits for an option and selects it."""
        text = json.dumps(value)
        await self.until(
            f"(one => one && [...one.options].some(other => other.value === {text}) && "
            f"(one.value = {text}, one.dispatchEvent(new Event('change', {{bubbles: true}})), true))"
            f"({_first(selector)})"
        )

    async def press(self, key: str, *, ctrl: bool = False) -> None:
        """Presses one key."""
        code, text = _KEYS.get(key, (ord(key[0].upper()), key))
        keys = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 2 if ctrl else 0}
        await self.command("Input.dispatchKeyEvent", type="keyDown", text="" if ctrl else text, **keys)
        await self.command("Input.dispatchKeyEvent", type="keyUp", **keys)

    async def attach(self, selector: str, files: Sequence[Path]) -> None:
        """Selects files, like the system's dialog."""
        root = (await self.command("DOM.getDocument"))["root"]["nodeId"]
        node = (await self.command("DOM.querySelector", nodeId=root, selector=selector))["nodeId"]
        await self.command("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])


def _first(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})"


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Page]:
    """Opens a new page in a running browser."""
    async with aiohttp.ClientSession() as http, http.ws_connect(address, max_msg_size=0) as socket:
        page = Page(socket)
        hearing = asyncio.create_task(page.receive(), name="what the browser says")
        try:
            await page.open()
            yield page
        finally:
            hearing.cancel()
