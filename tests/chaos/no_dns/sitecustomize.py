"""Put on a process's PYTHONPATH: no name has an address, and nobody outside is asked.

Python imports this module by itself at start. Each name that was to be looked up is a line
of the file NAMES_ASKED.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

ASKED = Path(os.environ["NAMES_ASKED"])

_right = socket.getaddrinfo


def _literals_only(
    host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> Any:
    try:
        return _right(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)
    except socket.gaierror:
        with ASKED.open("a") as file:
            file.write(f"{host}\n")
        raise


socket.getaddrinfo = _literals_only
