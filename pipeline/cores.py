"""How many cores this process may use."""

import os


def usable_cores() -> int:
    """Cores in the process's affinity mask where the system has one, else the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
