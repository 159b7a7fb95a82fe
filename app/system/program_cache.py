"""The folder where XLA stores the programs that it compiled for a GPU, for later processes.

TensorFlow reads its flags when it is imported, so this module does not import it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

_FLAG = "--tf_xla_persistent_cache_directory"
_PREFIX = "--tf_xla_persistent_cache_prefix"
# TensorFlow's device and, for functions that it compiles by PjRt, the device of the compiler.
_DEVICES = "--tf_xla_persistent_cache_device_types=GPU,XLA_GPU_JIT"
_DRIVER = Path("/proc/driver/nvidia")


def gpu_kind(environ: Mapping[str, str], driver: Path = _DRIVER) -> str:
    """Return the NVIDIA driver and the model of the GPUs of this machine, in one text.

    It is empty without a driver, if CUDA_VISIBLE_DEVICES hides all GPUs, and if the GPUs are of
    several models.
    """
    if environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    try:
        texts = [path.read_text() for path in driver.glob("gpus/*/information")]
        models = set(re.findall(r"^Model:\s*(.+)", "\n".join(texts), re.MULTILINE))
        return f"{(driver / 'version').read_text()}{models.pop()}" if len(models) == 1 else ""
    except OSError:
        return ""


def with_folder(environ: Mapping[str, str], gpu: str) -> dict[str, str]:
    """Return the environment variables with which XLA stores its programs for a GPU in a folder.

    The folder is `lexrow/programs` in XDG_CACHE_HOME or `~/.cache`; it is created, and only its
    owner may read or write it, as programs in it are run. XLA's own key of a program lacks the
    version of TensorFlow, the GPU and XLA_FLAGS, so the names of the files begin with a hash of
    them. Those that are not sealed are removed, see `seal`. Programs for a CPU are not stored.

    Args:
        environ: The environment variables. If TF_XLA_FLAGS names a folder or a file of flags, they
            are returned as they are.
        gpu: The result of `gpu_kind`; if it is empty, the variables are returned as they are.

    Raises:
        OSError: The folder cannot be created or written, or belongs to another user.
    """
    flags = environ.get("TF_XLA_FLAGS", "").strip()
    if not gpu or _FLAG in flags or (flags and not flags.startswith("-")):
        return dict(environ)
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG Base Directory Specification ignores other values
        base = Path(environ.get("HOME") or Path.home()) / ".cache"
    path = base / "lexrow" / "programs"
    path.mkdir(parents=True, exist_ok=True)
    for private in (path.parent, path):
        if private.stat().st_uid != os.geteuid():
            raise PermissionError(f"{private} belongs to another user")
        private.chmod(0o700)
    made_for = "\n".join([metadata.version("tensorflow"), gpu, flags, environ.get("XLA_FLAGS", "")])
    prefix = hashlib.sha256(made_for.encode()).hexdigest()[:12]
    for program in path.glob(f"{prefix}__*.pb"):
        with contextlib.suppress(FileNotFoundError):  # removed by another process
            if program.stat().st_mtime != _checksum(program):
                program.unlink()
    quoted = re.sub(r'(["\\])', r"\\\1", str(path))
    added = f'{_FLAG}="{quoted}" {_PREFIX}={prefix} {_DEVICES}'
    return {**environ, "TF_XLA_FLAGS": f"{flags} {added}".lstrip()}


def seal(environ: Mapping[str, str]) -> None:
    """Mark the programs that were stored since the result of `with_folder` as whole.

    Their bytes reach the disk, and their checksum becomes the time of the last change, in seconds.
    Where a file is cut off, written or replaced later, or a bit of the disk flips, the two differ.
    XLA would end the run for some of these files, and does not see that a number or an instruction
    is another one.
    """
    found = re.search(rf"{_PREFIX}=([0-9a-f]{{12}}) ", environ.get("TF_XLA_FLAGS", ""))
    for path in Path(folder(environ)).glob(f"{found[1]}__*.pb") if found else ():
        with contextlib.suppress(OSError), path.open("rb") as file:
            os.fsync(file.fileno())
            os.utime(path, (checksum := _checksum(path), checksum))


def _checksum(path: Path) -> int:
    """Return a checksum of a file of 31 bits, as every file system stores times until 2038."""
    return zlib.crc32(path.read_bytes()) >> 1


def folder(environ: Mapping[str, str]) -> str:
    """Return the folder where XLA stores its programs, empty for none.

    Args:
        environ: The environment variables with which TensorFlow was imported.
    """
    found = re.search(rf'{_FLAG}=(?:"((?:\\.|[^"\\])*)"|(\S*))', environ.get("TF_XLA_FLAGS", ""))
    return re.sub(r"\\(.)", r"\1", found[1]) if found and found[1] else found[2] if found else ""
