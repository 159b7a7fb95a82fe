"""TensorBoard on a finished workdir, as Chromium shows it.

The picture of README is that of a run of `make train`:

    python -m tests.integration.test_browser data/runs/words data/benchmarks/tensorboard.png
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from app.text import vocabulary
from tests.exporting.test_projector import ask_tensorboard
from tests.integration.commands import ROOT, SECONDS, done, logged, train
from tests.processes import until

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

    def ask(self, script: str, *arguments: str) -> Any:
        """The value of a script in the page."""
        return self._chromium.execute_script(script, *arguments)

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

    def resize(self, width: int, height: int) -> None:
        """Gives the window another size, in pixels."""
        self._chromium.set_window_size(width, height)

    def complaints(self, *known: str) -> list[str]:
        """The errors in the console since the last call; but those that a pattern matches whole."""
        said = self._chromium.get_log("browser")
        errors = [entry["message"] for entry in said if entry["level"] == "SEVERE"]
        patterns = [re.compile(pattern, re.DOTALL) for pattern in known]
        return [line for line in errors if not any(p.fullmatch(line) for p in patterns)]


WINDOW = range(6, 20, 2)  # the calls of two steps that are recorded

# The frontend of xprof takes the library of its charts from Google, and its fonts; without a
# network it goes on without.
OFFLINE = (
    r"https://www\.gstatic\.com/charts/loader\.js - Failed to load resource: \S+",
    r"\S+/index\.html \d+ Loading the script 'https://www\.gstatic\.cn/\S+' violates .*",
    r'\S+/bundle\.js \S+ "XProf Error:" "ReferenceError: google is not defined.*',
    r"https://fonts\.googleapis\.com/\S+ - Failed to load resource: \S+",
)
# Its list of hosts is a list where it reads the address of the page, and text elsewhere.
XPROF_HOSTS = r'\S+/bundle\.js \S+ "XProf Error:" "TypeError: \w+\.split is not a function.*'
# The first to look at a profile is told that nobody has before.
XPROF_CACHE = re.compile(
    r"ERROR [^\n]*\.cached_tools\.json: FileNotFoundError[^\n]*invalidating\.\n"
    r"Traceback .*?\nFileNotFoundError: [^\n]*\.cached_tools\.json'\n",
    re.DOTALL,
)


@contextlib.contextmanager
def make_tensorboard(folder: pathlib.Path):
    """`make tensorboard` in a folder, with the Python of the tests: its address, and its stderr."""
    command = ["make", "--silent", f"--file={ROOT / 'Makefile'}", "--old-file=setup", "tensorboard"]
    variables = f"BIN={pathlib.Path(sys.executable).parent}", "ARGS=--host=127.0.0.1 --port=0"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    environment["PYTHONPATH"] = str(ROOT)
    told = folder / "told"
    with open(told, "w") as file:
        place = {"cwd": folder, "env": environment, "stdout": file, "stderr": file}
        # In a session of its own, so that what make starts ends with it.
        process = subprocess.Popen([*command, *variables], **place, start_new_session=True)
    address = re.compile(r"at (http://\S+) \(Press .*\n")
    try:
        until(lambda: process.poll() is not None or address.search(told.read_text()))
        yield address.search(told.read_text())[1], told
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize(("logdir", "run"), [("tensorboard", "run"), ("..", "run/tensorboard/run")])
def test_the_projector_finds_the_words_of_a_run_and_of_several(trained, logdir, run):
    assert json.loads(ask_tensorboard((trained / logdir).resolve(), "/runs").text) == [run]


@pytest.mark.slow
@pytest.mark.skipif(not all(map(shutil.which, BINARIES)), reason="no chromium or chromedriver")
def test_tensorboard_shows_our_run_words_and_steps(tmp_path, corpus):
    runs = tmp_path / "data/runs"
    workdir = runs / "newest"
    done(tmp_path, *train(workdir, corpus, f"--profile_steps={WINDOW.start},{WINDOW.stop}"))
    (runs / "older").mkdir()
    os.utime(runs / "older", (0, 0))

    with make_tensorboard(tmp_path) as (address, told):
        assert told.read_text().count("\n") == 1  # no noise
        with browsing(tmp_path / "chromium") as browser:
            scalars(browser, address, workdir)
            settings(browser, address, workdir)
            projector(browser, address, workdir)
            profile(browser, address, workdir)
        # Before it ends: make sends SIGTERM, too, which TensorBoard does not expect twice.
        said = XPROF_CACHE.sub("", told.read_text())
    assert "Traceback" not in said and "ERROR" not in said, said


def scalars(browser, address, workdir):
    """The time series: groups with the loss first, the name of the run, its last numbers."""
    last = logged(workdir)[-1]
    browser.open(f"{address}#timeseries")
    groups = ["Pinned", "loss", "speed", "train"]
    browser.until(lambda: browser.texts(".group-title") == groups)
    browser.until(lambda: browser.texts("scalar-card .tag")[0].split() == ["loss", "/train"])
    browser.type("input[placeholder^='Filter tags']", "^loss/train$")
    row = [workdir.name, f"{last['loss']:.5g}", str(int(last["step"]))]
    browser.until(lambda: set(row) <= set(browser.texts("scalar-card .cell")))
    assert browser.complaints() == []


def draw(workdir, path):
    """Write a picture of the time series of a run."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "data/runs").mkdir(parents=True)
        (folder / "data/runs" / workdir.name).symlink_to(workdir.resolve())
        with make_tensorboard(folder) as (address, _), browsing(folder / "chromium") as browser:
            browser.resize(1500, 1330)
            browser.open(f"{address}#timeseries")
            browser.until(lambda: workdir.name in browser.texts("scalar-card .cell"))
            browser.ask(f"{_FIND} found[0].click()", ".settings-button")  # closes the settings
            time.sleep(5)  # until the lines are drawn
            browser.picture(path)


def settings(browser, address, workdir):
    """The settings as text and as a line of the table of hyperparameters."""
    browser.open(f"{address}#text")
    browser.until(lambda: "learning_rate" in browser.texts("td"))
    browser.open(f"{address}#hparams")
    cells = f"{workdir.name} ({workdir.parent})", f"{logged(workdir)[-1]['loss']:.5g}"
    browser.until(lambda: set(cells) <= set(browser.texts("vaadin-grid-cell-content")))
    assert browser.complaints() == []


def projector(browser, address, workdir):
    words = vocabulary.load(str(workdir / "vocab.tsv"))
    browser.open(f"{address}#projector", frames=2)
    browser.until(lambda: browser.texts(".numDataPoints") == [str(len(words.tokens))])
    rank = next(rank for rank, word in enumerate(words.tokens) if not word.isascii())
    browser.type("#search-box >>> paper-input >>> input", words.tokens[rank])
    row = [words.tokens[rank], str(rank + 1), str(words.counts[rank])]
    browser.until(lambda: set(row) <= set(browser.texts(".metadata-value")))
    colour = (
        "found[0].selectedColorOptionName = 'log10(count)'; return found[0].colorLegendRenderInfo"
    )
    legend = browser.ask(f"{_FIND} {colour}", "vz-projector-data-panel")
    log_counts = np.log10([words.counts.min(), words.counts.max()])
    shown = [float(item["label"]) for item in legend["items"]]  # a gradient above 50 values
    np.testing.assert_allclose([min(shown), max(shown)], log_counts, atol=1e-3)
    assert browser.complaints() == []


def profile(browser, address, workdir):
    (recorded,) = workdir.glob("tensorboard/*/plugins/profile/*")
    browser.open(f"{address}#profile", frames=1)
    browser.until(lambda: "Performance Summary" in browser.texts("*"))
    assert f"{workdir.name}/{recorded.name}" in browser.texts("mat-select")
    browser.open(f"{address}?tag=trace_viewer%40#profile", frames=2)
    # What is looked for before the trace is drawn is not found later either.
    browser.until(lambda: "\u25be python" in browser.texts("tr-ui-b-heading"))
    browser.type("#filter", "train")
    hits = "return document.querySelector('tr-ui-find-control').controller.filterHits"
    titles = browser.until(lambda: browser.ask(f"{hits}.map(event => event.title)"))
    assert {title for title in titles if re.fullmatch(r"train \d+", title)} == {
        f"train {step}" for step in WINDOW
    }
    assert browser.complaints(*OFFLINE, XPROF_HOSTS) == []


if __name__ == "__main__":
    draw(*map(pathlib.Path, sys.argv[1:]))
