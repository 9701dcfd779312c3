"""libcurl's own reading of a URL (curl_url_get), for tests: pycurl does not offer it."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import pycurl  # noqa: F401 - loads libcurl

from tests.support import require

# curl/urlapi.h: CURLUPart, CURLU_DEFAULT_PORT, CURLU_PATH_AS_IS.
SCHEME, HOST, PORT, PATH, QUERY = 1, 5, 6, 7, 8
DEFAULT_PORT, PATH_AS_IS = 1 << 0, 1 << 4


@cache
def _library() -> Any:
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    found = {line.split()[-1] for line in lines if "/libcurl" in line}
    require(found, "libcurl as a shared library", "uv sync --extra curl, on Linux")
    library = ctypes.CDLL(found.pop())
    library.curl_url.restype = ctypes.c_void_p
    library.curl_url_cleanup.argtypes = [ctypes.c_void_p]
    library.curl_free.argtypes = [ctypes.c_void_p]
    library.curl_url_set.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint,
    ]  # fmt: skip
    library.curl_url_get.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint,
    ]  # fmt: skip
    return library


def read(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and request target as libcurl reads them; ValueError if it refuses."""
    library = _library()
    handle = library.curl_url()
    try:
        code = library.curl_url_set(handle, 0, url.encode(), PATH_AS_IS)
        if code:
            raise ValueError(f"libcurl refuses {url!r}: error {code}")
        scheme, host, port, path, query = (
            _part(library, handle, part) for part in (SCHEME, HOST, PORT, PATH, QUERY)
        )
    finally:
        library.curl_url_cleanup(handle)
    return scheme or "", host or "", int(port or 0), f"{path}{'' if query is None else '?' + query}"


def _part(library: Any, handle: Any, part: int) -> str | None:
    text = ctypes.c_void_p()
    if library.curl_url_get(handle, part, ctypes.byref(text), DEFAULT_PORT):
        return None
    try:
        return ctypes.string_at(text.value or 0).decode()
    finally:
        library.curl_free(text)
