"""A Chromium without a window, spoken to in its own protocol (Chrome DevTools Protocol) over a WebSocket.

Input is the browser's own: the mouse goes where an element is, keys arrive where the focus is. What is waited for is
looked for in the page until it is there.
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
"""Seconds after which something that was waited for is taken not to come."""

_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--remote-debugging-port=0", "--force-color-profile=srgb"),
    # A stranger's names, which lead to this machine.
    "--host-resolver-rules=MAP *.evil.example 127.0.0.1",
)
_LISTENS: Final = re.compile(rb"DevTools listening on (ws://\S+)")
_KEYS: Final = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowDown": (40, ""), "ArrowRight": (39, "")}


def find() -> str:
    """The Chromium of this machine, empty when there is none: the one that `CHROMIUM` names, if it names one."""
    named = os.environ.get("CHROMIUM", "")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next(filter(None, map(shutil.which, names)), "")


@contextmanager
def launched(program: str, profile: Path) -> Iterator[str]:
    """Runs a browser with an empty profile, and gives the address at which it can be spoken to."""
    # Where that is to be had, it does not outlive us, however we end.
    leash = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [*leash, program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
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


class Broken(Exception):
    """The browser refused a command, or a script in the page failed."""


class Page:
    """One page, with storage of its own."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._session = ""
        self._loaded = asyncio.Event()
        self.errors: list[str] = []
        """What went wrong in the page: exceptions, and what its policy forbids. Answers with an error are none."""

    async def command(self, method: str, **params: Any) -> Any:
        """One command to the browser; its result."""
        number = len(self._waiting) + 1
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        values = {"id": number, "method": method, "params": params}
        await self._socket.send_json({**values, **({"sessionId": self._session} if self._session else {})})
        return await asyncio.wait_for(answer, WAIT_TIMEOUT)

    async def open(self) -> None:
        """Makes the page. `hear` has to run."""
        context = (await self.command("Target.createBrowserContext"))["browserContextId"]
        value = await self.command("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.command("Target.attachToTarget", targetId=value["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM", "Network"):
            await self.command(f"{domain}.enable")
        await self.view(1280, 800)

    async def hear(self) -> None:
        """Takes what the browser says."""
        async for message in self._socket:
            value = json.loads(message.data)
            if "id" in value:
                answer = self._waiting[value["id"]]
                if answer.done():
                    continue
                if "error" in value:
                    answer.set_exception(Broken(value["error"]["message"]))
                else:
                    answer.set_result(value["result"])
                continue
            match value["method"], value["params"]:
                case "Page.loadEventFired", _:
                    self._loaded.set()
                case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                    self.errors.append(details.get("exception", {}).get("description") or details["text"])
                case "Log.entryAdded", {"entry": entry} if entry["level"] == "error" and entry["source"] != "network":
                    self.errors.append(entry["text"])

    # ---- where it is, and how it looks

    async def go(self, url: str) -> None:
        """Opens an address, and waits until the page is there."""
        self._loaded.clear()
        await self.command("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), WAIT_TIMEOUT)

    async def reload(self) -> None:
        """As the user's button does."""
        self._loaded.clear()
        await self.command("Page.reload")
        await asyncio.wait_for(self._loaded.wait(), WAIT_TIMEOUT)

    async def view(self, width: int, height: int, *, scale: float = 1) -> None:
        """The size of the window, in CSS pixels."""
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    async def prefer(self, colors: str) -> None:
        """`light` or `dark`, as the system of the user says."""
        await self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colors}])

    async def picture(self) -> bytes:
        """What is seen, as a PNG."""
        return base64.b64decode((await self.command("Page.captureScreenshot", format="png"))["data"])

    # ---- what is in it

    async def run(self, script: str) -> Any:
        """The value of an expression, which may be a promise. Raises Broken."""
        done = await self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise Broken(details.get("exception", {}).get("description") or details["text"])
        return done["result"].get("value")

    async def until(self, condition: str) -> Any:
        """Waits until an expression is true, and gives its value. It may fail meanwhile."""
        script = (
            "new Promise(done => { const look = () => { let value; try { value = (" + condition + "); } catch { } "
            "value ? done(value) : setTimeout(look, 15); }; look(); })"
        )
        try:
            async with asyncio.timeout(WAIT_TIMEOUT):
                while True:
                    try:
                        return await self.run(script)
                    except Broken as error:  # the page was left in between
                        if "context" not in str(error) and "navigated" not in str(error):
                            raise
        except TimeoutError:
            shown = await self.run("document.body.innerText")
            raise AssertionError(f"never came: {condition}\nthe page:\n{shown}\nerrors: {self.errors}") from None

    async def see(self, text: str, within: str = "body") -> None:
        """Waits until a text is shown."""
        await self.until(f"document.querySelector({json.dumps(within)}).innerText.includes({json.dumps(text)})")

    async def text(self, selector: str) -> str:
        """The text of the first element that fits, once there is one."""
        found = await self.until(f"document.querySelector({json.dumps(selector)}) && [{_first(selector)}.innerText]")
        return str(found[0])

    # ---- what a user does

    async def click(self, selector: str, text: str = "") -> None:
        """Clicks into the middle of the first element that fits and shows the text, once there is one."""
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})].find(one => "
            f"one.checkVisibility() && !one.disabled && one.innerText.includes({json.dumps(text)}))"
        )
        box = await self.until(
            f"(one => {{ if (!one) return; one.scrollIntoView({{block: 'nearest'}}); "
            f"const box = one.getBoundingClientRect(); "
            f"return {{x: box.x + box.width / 2, y: box.y + box.height / 2}}; }})({found})"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.command("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **box)

    async def type(self, selector: str, text: str) -> None:
        """Writes into a field, in the place of what is there."""
        await self.until(f"(one => one && (one.focus(), one.select(), true))({_first(selector)})")
        await self.command("Input.insertText", text=text)

    async def choose(self, selector: str, value: str) -> None:
        """Chooses from a list, once it has the value."""
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
        """Chooses files, as the system's dialog would."""
        root = (await self.command("DOM.getDocument"))["root"]["nodeId"]
        node = (await self.command("DOM.querySelector", nodeId=root, selector=selector))["nodeId"]
        await self.command("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])


def _first(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})"


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Page]:
    """A new page of a browser that runs."""
    async with aiohttp.ClientSession() as http, http.ws_connect(address, max_msg_size=0) as socket:
        page = Page(socket)
        hearing = asyncio.create_task(page.hear(), name="what the browser says")
        try:
            await page.open()
            yield page
        finally:
            hearing.cancel()
