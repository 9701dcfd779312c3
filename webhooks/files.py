"""Where templates, static files and migrations lie: in a checkout or in a wheel."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def find(name: str) -> Path:
    """Path of a top-level file or folder, for example ``templates``.

    A wheel carries them in ``webhooks/_files``; a checkout has them beside the
    package. Raises FileNotFoundError when neither has it.
    """
    for root in (PACKAGE / "_files", PACKAGE.parent):
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"{name} is missing from this installation; install it again")
