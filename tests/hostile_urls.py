"""URLs that must not be registered, by what the refusal must say.

From rows 1 to 34 of the list of hostile inputs, and cases W026, W029, W031, W032, W037, W038
and W047. None of them may be accepted where neither http nor any special network is allowed.
"""

from __future__ import annotations

REFUSED_TARGET = "is not allowed; give a host name such as hooks.example.com"

REFUSED: dict[str, list[str]] = {
    "http:// is not allowed here": ["http://example.com/"],
    "https://": [
        "ftp://example.com/", "file:///etc/passwd", "gopher://x.example/", "javascript:alert(1)",
        "data:text/html,x", "http+unix://%2Fsock/x", "jar:https://x.example!/", "mailto:a@b.c",
        "//host.example/x", "host.example/x", "", "unix:/x", "HTTPSS://x.example/", "ws://x.example/",
    ],
    "no host": ["https:/x", "https:///x", "https://", "https:x", "https://?x", "https:?"],
    REFUSED_TARGET: [
        "https://127.0.0.1/", "https://10.0.0.5/", "https://169.254.169.254/", "https://1.1.1.1/",
        "https://127.0.0.1./", "https://168.63.129.16/", "https://192.0.0.192/",
        "https://100.100.100.200/", "https://100.64.0.1/", "https://0.0.0.0/", "https://224.0.0.1/",
        "https://255.255.255.255/", "https://localhost/", "https://LOCALHOST./",
        "https://a.localhost/", "https://foo.localhost/", "https://[::1]/", "https://[::]/",
        "https://[fec0::1]/", "https://[::ffff:127.0.0.1]/", "https://[0:0:0:0:0:ffff:a00:1]/",
        "https://[::ffff:a9fe:a9fe]/", "https://[::127.0.0.1]/", "https://[::ffff:0:7f00:1]/",
        "https://[64:ff9b::a9fe:a9fe]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/",
        "https://[2001:0:7f00:1::]/", "https://[fd00:ec2::254]/", "https://[fd00::1]/",
        "https://[ff02::1]/", "https://[2606:4700::1111]/", "https://metadata.google.internal/",
        "https://kubernetes.default.svc/", "https://host.docker.internal/", "https://metadata/",
        "https://x.local/", "https://x.cluster.local/", "https://x.lan/", "https://x.home.arpa/",
        "https://x.onion/", "https://printer.local./",
    ],
    "ends in a number": [
        "https://127.1/", "https://0/", "https://2130706433/", "https://0x7f000001/",
        "https://017700000001/", "https://0x7f.1/", "https://127.000.000.001/", "https://0177.0.0.1/",
        "https://256.256.256.256/", "https://1.1.1.1.1/", "https://4294967297/", "https://a.0x/",
        "https://example.123/", "https://127。0。0。1/",
    ],
    "zone": ["https://[::1%lo]/", "https://[fe80::1%eth0]/"],
    "international name": [
        "https://①②⑦.⓪.⓪.①/", "https://ⓛocalhost/", "https://exa\u30fbmple.example/",
        "https://\uff11\uff12\uff17.\uff10.\uff10.\uff11/",
    ],
    "percent-encoded": [
        "https://%6c%6f%63%61%6c%68%6f%73%74/", "https://evil.com%00.good.com/",
    ],
    "user name": [
        "https://user:pw@example.com/", "https://@example.com/", "https://user@example.com/",
        "https://:@example.com/", "https://a@b@example.com/",
    ],
    "U+005C": ["https://127.0.0.1\\@good.com/", "https://good.com\\.evil/", "https:\\\\h\\x"],
    "U+0009": ["https://exam\tple.com/", "\thttps://example.com/"],
    "U+000D": ["https://example.com/\r\nX: y"],
    "U+000A": ["https://example.com/h\n"],
    "U+0000": ["https://example.com/\0"],
    "U+0020": [" https://example.com/h", "https://example.com/h ", "https://exa mple.com/"],
    "U+007F": ["https://example.com/\x7f"],
    "U+00A0": ["https://example.com/\u00a0"],
    "U+FEFF": ["\ufeffhttps://example.com/h"],
    "U+200B": ["https://example.com/h\u200b", "https://exam\u200bple.com/"],
    "U+00AD": ["https://exam\u00adple.com/"],
    "U+D800": ["https://example.com/\ud800"],
    "port 0 does not exist": ["https://h.example:0/"],
    "does not exist": ["https://h.example:65536/", "https://h.example:99999/"],
    "port": [
        "https://h.example:+443/", "https://h.example:\uff14\uff14\uff13/", "https://h.example:443:80/",
        "https://h.example:abc/", "https://h.example:-1/", "https://h.example:4_4/",
        "https://h.example:000443/", "https://[2606:4700::1]x/",
    ],
    "is not allowed; use 443, 8443": [
        f"https://example.com:{port}/" for port in (22, 25, 80, 1023, 6379, 5432, 9200, 11211)
    ],
    "fragment": ["https://example.com/#x", "https://example.com/#"],
    "2049 characters": ["https://example.com/" + "x" * 2029],
    "valid name": [
        "https://a..b/", "https://.example.com/", "https://*.example.com/", "https://-a.example/",
        "https://a-.example/", f"https://{'a' * 64}.example/", "https://a_b.example/", "https://./",
        f"https://{'.'.join(['a' * 49] * 5)}.exam/", "https://exa$mple.com/",
    ],
    "no domain": ["https://example/", "https://intranet./"],
    "": ["https://[::1", "https://[example.com]/", "https://[v1.x]/", "https://::1/", "https://[]/",
         "https://[1.2.3.4]/", "https://a[::1]/"],
}  # fmt: skip
