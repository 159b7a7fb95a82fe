"""A headless Chromium without a network, for tests that look at pages as a person does."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.integration.commands import SECONDS

BINARIES = "chromium", "chromedriver"  # Debian's packages chromium and chromium-driver
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # which root cannot have
    "--window-size=1500,1000",
    # WebGL without a GPU.
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    # The same on a machine with a network as on one without.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)

# An index, as what the trace viewer's polyfill gives cannot be iterated.
_FIND = """
const find = (root, selector) => {
  const found = [], all = root.querySelectorAll('*');
  for (let i = 0; i < all.length; i++) {
    if (all[i].matches(selector)) found.push(all[i]);
    const shadow = all[i].shadowRoot;
    if (shadow && shadow.querySelectorAll) found.push(...find(shadow, selector));
  }
  return found;
};
const found = arguments[0].split(' >>> ').reduce(
  (roots, selector) => roots.flatMap(root => find(root.shadowRoot || root, selector)), [document]);
"""


def missing() -> list[str]:
    """What has to be installed first."""
    return [name for name in BINARIES if shutil.which(name) is None]


@contextlib.contextmanager
def browsing(folder: pathlib.Path) -> Iterator[Browser]:
    """A browser that keeps its profile in a new folder."""
    options = webdriver.ChromeOptions()
    options.binary_location, driver = map(shutil.which, BINARIES)
    for argument in (*_ARGUMENTS, f"--user-data-dir={folder}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With both paths given, selenium looks for no driver to download.
    chromium = webdriver.Chrome(options, webdriver.ChromeService(driver))
    browser = Browser(chromium)
    try:
        yield browser
    except BaseException:
        browser.picture(folder.parent / "failed.png")
        raise
    finally:
        chromium.quit()


class Browser:
    """What a test does with a page.

    A selector finds elements in shadow roots too, but not in frames; `A >>> B` finds what B does
    in the shadow root of A.
    """

    def __init__(self, chromium: webdriver.Chrome):
        self._chromium = chromium

    def open(self, address: str, frames: int = 0) -> None:
        """Opens a page anew, and goes into the first frame as often as said."""
        self._chromium.get("about:blank")  # or an address that differs after # would not load
        self._chromium.get(address)
        for _ in range(frames):
            self.until(lambda: self.ask("return window.length"))
            self._chromium.switch_to.frame(0)

    def ask(self, script: str) -> Any:
        """The value of a script in the page."""
        return self._chromium.execute_script(script)

    def texts(self, selector: str) -> list[str]:
        """What the elements say, those that are not shown included."""
        said = f"{_FIND} return found.map(element => element.innerText || element.textContent)"
        return [text.strip() for text in self._chromium.execute_script(said, selector) if text]

    def count(self, selector: str) -> int:
        """How many elements there are."""
        return self._chromium.execute_script(f"{_FIND} return found.length", selector)

    def type(self, selector: str, text: str) -> None:
        """Types into the only such field, once it is there, and presses Enter."""
        focus = f"{_FIND} found.forEach(element => element.focus()); return found.length"
        self.until(lambda: self._chromium.execute_script(focus, selector) == 1)
        ActionChains(self._chromium).send_keys(text).perform()
        typed = f"{_FIND} return found[0].value"
        self.until(lambda: self._chromium.execute_script(typed, selector) == text)
        ActionChains(self._chromium).send_keys(Keys.ENTER).perform()

    def until(self, happened: Callable[[], Any]) -> Any:
        """Waits for a value that is true, and gives it."""
        return WebDriverWait(self._chromium, SECONDS, poll_frequency=0.1).until(
            lambda _: happened()
        )

    def picture(self, path: pathlib.Path) -> None:
        """Saves what is to be seen."""
        assert self._chromium.save_screenshot(str(path))

    def complaints(self, *known: str) -> list[str]:
        """The errors in the console since the last call; but those that a pattern matches whole."""
        said = self._chromium.get_log("browser")
        errors = [entry["message"] for entry in said if entry["level"] == "SEVERE"]
        patterns = [re.compile(pattern, re.DOTALL) for pattern in known]
        return [line for line in errors if not any(p.fullmatch(line) for p in patterns)]
