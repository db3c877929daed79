"""What this process may use of the machine."""

import os
from pathlib import Path


def cores() -> int:
    """The cores that this process may use, by affinity and by the limit of its control group."""
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))


def give_way() -> None:
    """Lets another process have this core for a moment, if one wants it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
