"""Where a run's numbers come from: versions, source and machine."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from relval import __version__

_PACKAGES = ("torch", "gymnasium", "numpy", "minatar", "ale-py", "mujoco")


def provenance() -> dict[str, Any]:
    """Versions of all that matters, the state of the source, and the hardware."""
    return {
        "versions": {
            "python": platform.python_version(),
            "relval": __version__,
            **_versions(),
        },
        "git": _git(),
        "hardware": {
            "machine": platform.machine(),
            "system": platform.platform(),
            "cpu": processor(),
            "cores": os.cpu_count(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def continued(origin: dict[str, Any], from_step: int) -> dict[str, Any]:
    """The provenance of a run that goes on here and now: it tells what is not as it was before."""
    parts = [part for part in origin.get("continued", []) if part["from_step"] < from_step]
    here = provenance()
    before = parts[-1] if parts else origin
    if here != {name: before.get(name) for name in here}:
        parts.append({"from_step": from_step, **here})
    began = {name: value for name, value in origin.items() if name != "continued"}
    return {**began, "continued": parts} if parts else began


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _git() -> dict[str, Any] | None:
    """The commit of relval's own source and whether it was changed, if it is a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return result.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", str(Path(__file__)))
        return {"commit": git("rev-parse", "HEAD"), "changed": git("status", "--porcelain") != ""}
    except (OSError, subprocess.SubprocessError):
        return None


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
