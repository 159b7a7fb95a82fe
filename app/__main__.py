"""The console command `lexrow`, which runs one of the commands."""

from __future__ import annotations

import difflib
import runpy
import sys

from . import __version__

COMMANDS = {
    "train": "Train a model.",
    "evaluate": "Score a trained run, or a file of word vectors.",
    "neighbors": "Print the nearest words.",
    "export": "Export vectors or a model.",
    "predict": "Predict the labels of texts, one text a line.",
    "recommend": "Print the best items of users.",
    "profile": "Name the bottleneck of a run.",
    "cluster": "Try a cluster on this machine.",
}
_USAGE = f"""\
Usage: lexrow COMMAND [FLAGS]

{chr(10).join(f"  {name:<11}{text}" for name, text in COMMANDS.items())}

Train word vectors on a text, and ask them:

  lexrow train --task=words --corpus=text.txt --workdir=runs/words
  lexrow neighbors --workdir=runs/words king

`lexrow COMMAND --help` prints the flags of a command, `lexrow train --preset=` the names of the
examples of settings. In Python, begin with `import lexrow; help(lexrow)`."""


def main() -> int:
    """Run the command that the first argument names, and return the exit code.

    The modules of the other commands are not imported.
    """
    name, *rest = sys.argv[1:] or ["help"]
    if name == "help" and rest:
        name, *rest = *rest, "--help"
    if name in ("--help", "-h", "-help", "help"):
        print(_USAGE)
        return 0
    if name == "--version":
        print(f"lexrow {__version__}")
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        remedy = f"did you mean {near[0]}?" if near else f"choose from {', '.join(COMMANDS)}"
        print(f"lexrow: {name!r} is no command; {remedy}", file=sys.stderr)
        return 2
    sys.argv[1:] = rest
    runpy.run_module(f"{__package__}.{name}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
