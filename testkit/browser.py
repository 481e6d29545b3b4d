"""Opens pages in Debian's headless Chromium, and records their requests, errors and drawn charts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Dialog, sync_playwright

from offsetstream.embedded.ports import LOOPBACK
from testkit.programs import debian_program, npm_file
from testkit.waiting import SECONDS

Scheme = Literal["light", "dark"]
_AXE = ("axe-core", "4.14.1", "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745", "axe.min.js")
_NOBODY = f"http://{LOOPBACK}:9"  # no server listens there
_LISTEN = """
    window.violations = [];
    addEventListener("securitypolicyviolation", (event) =>
      violations.push(`${event.effectiveDirective} ${event.blockedURI}`));"""
_UNFOLDED = """() => [...document.querySelectorAll(".chart")].filter((each) => !each.closest("details:not([open])"))"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser, and install it first if needed. Its own background requests go nowhere."""
    program = debian_program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, proxy={"server": _NOBODY})
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A window. `requests` (sent to `proxy`) and `complaints` have everything since it was opened."""

    def __init__(self, browser: Browser, width: int = 1200, scheme: Scheme = "light", proxy: str = _NOBODY) -> None:
        self._context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            proxy={"server": proxy, "bypass": "<-loopback>"},
        )
        self._context.add_init_script(_LISTEN)
        self._context.set_default_timeout(SECONDS * 1000)
        self.page = self._context.new_page()
        self.requests, self._said = list[str](), list[str]()
        self._context.on("request", lambda request: self.requests.append(request.url))
        self._context.on("console", lambda message: self._said.append(message.text))
        self.page.on("pageerror", lambda error: self._said.append(str(error)))
        self.page.on("dialog", self._refuse)

    def go(self, file: Path) -> None:
        self.page.goto(file.as_uri())

    def _refuse(self, dialog: Dialog) -> None:
        self._said.append(dialog.message)
        dialog.dismiss()

    def close(self) -> None:
        self._context.close()

    @property
    def complaints(self) -> list[str]:
        """Console output, exceptions, dialogs, and blocked actions of the page."""
        return [*self._said, *self.page.evaluate("violations")]

    def unfold(self) -> None:
        """Open all folded sections."""
        self.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")

    def draw(self) -> None:
        """Scroll to each chart outside folded sections, and wait until it is drawn."""
        charts = self.page.evaluate_handle(_UNFOLDED)
        for number in range(self.page.evaluate("(charts) => charts.length", charts)):
            self.page.evaluate("([charts, number]) => charts[number].scrollIntoView()", [charts, number])
            drawn = "([charts, number]) => ['yes', 'failed'].includes(charts[number].dataset.drawn)"
            self.page.wait_for_function(drawn, arg=[charts, number])
        self.page.evaluate("scrollTo(0, 0)")

    def broken_rules(self) -> list[str]:
        """Return the accessibility rules that the page breaks and where, by axe-core."""
        self.page.evaluate(npm_file(*_AXE).read_text("utf-8"))
        found: list[dict[str, Any]] = self.page.evaluate("axe.run().then((result) => result.violations)")
        return [f"{rule['id']}: {node['html']} {node['failureSummary']}" for rule in found for node in rule["nodes"]]


@contextmanager
def outside() -> Iterator[tuple[str, list[str]]]:
    """Run a proxy for the browser. Yields its address and all requests that it received."""
    asked: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        def _refuse(self) -> None:
            asked.append(self.requestline)
            self.send_error(502)

        do_GET = do_POST = do_HEAD = do_CONNECT = do_OPTIONS = _refuse  # noqa: N815 - named by http.server

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Proxy)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
