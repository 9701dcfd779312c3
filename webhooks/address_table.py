"""The tables behind ``addresses.py``: special networks, service ports, local names, remedies.

Sources: the IANA special-purpose address registries (IPv4, IPv6), the cloud providers'
documentation of their metadata services, the IANA service name and port registry, and
RFC 6761, 6762, 7686, 8375 for names that are never public.
"""

from __future__ import annotations

from ipaddress import ip_network

SPECIAL = tuple(ip_network(text) for text in (
    "0.0.0.0/8",  # this network
    "10.0.0.0/8",
    "100.64.0.0/10",  # carrier-grade NAT, Tailscale
    "127.0.0.0/8",
    "168.63.129.16/32",  # Azure WireServer, though a public address
    "169.254.0.0/16",  # link-local, metadata services
    "172.16.0.0/12",
    "192.0.0.0/24",  # IETF protocol assignments
    "192.0.2.0/24",  # documentation
    "192.31.196.0/24",  # AS112
    "192.52.193.0/24",  # AMT
    "192.88.99.0/24",  # 6to4 relay
    "192.168.0.0/16",
    "192.175.48.0/24",  # AS112
    "198.18.0.0/15",  # benchmarks
    "198.51.100.0/24",  # documentation
    "203.0.113.0/24",  # documentation
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, broadcast
    "2001::/23",  # Teredo, benchmarks, ORCHID
    "2001:db8::/32",  # documentation
    "2002::/16",  # 6to4
    "2620:4f:8000::/48",  # AS112
    "3fff::/20",  # documentation
))  # fmt: skip
# Outside of it no IPv6 address is public: not ::1, fc00::/7, NAT64, mapped or translated ones.
PUBLIC_V6 = ip_network("2000::/3")
# Never opened by an operator's allow list: a mistake there must not give away credentials.
METADATA = tuple(ip_network(text) for text in (
    "169.254.0.0/16",
    "168.63.129.16/32",  # Azure
    "192.0.0.192/32",  # Oracle
    "100.100.100.200/32",  # Alibaba
    "fd00:ec2::/32",  # AWS
    "fd20:ce::254/128",  # Google
    "fe80::/10",  # link-local, as 169.254.0.0/16
))  # fmt: skip

HTTPS_PORTS = frozenset({443, 8443})
HTTP_PORTS = HTTPS_PORTS | {80, 8080}
FIRST_FREE_PORT = 1024
# What speaks something else than HTTP, or is a machine's own control interface.
SERVICE_PORTS = frozenset({
    1080, 1433, 1521, 1723, 1883, 2049, 2181, 2375, 2376, 2379, 2380, 3128, 3306, 3389, 4369,
    5060, 5061, 5222, 5269, 5432, 5672, 5900, 5984, 5985, 5986, 6000, 6379, 6380, 6432, 6443,
    6665, 6666, 6667, 6668, 6669, 6697, 7000, 7001, 8086, 8125, 8200, 8500, 9042, 9092, 9160,
    9200, 9300, 10250, 10255, 11211, 15672, 16379, 26257, 26379, 27017, 27018, 27019, 28017,
})  # fmt: skip

LOCAL_SUFFIXES = (
    ".localhost", ".local", ".internal", ".svc", ".cluster.local", ".lan", ".home.arpa", ".onion",
)  # fmt: skip

LONGEST_URL = 2048
LONGEST_HOST = 253
LOOPBACK = ("127.0.0.1", "::1")

EXAMPLE = "a host name such as hooks.example.com"
HTTP_REMEDY = "give an https:// URL, or let the operator set WEBHOOKS_ALLOW_HTTP=true"
ADDRESS_REMEDY = f"give {EXAMPLE}, or let the operator open it with WEBHOOKS_ALLOW_CIDRS"
LOOPBACK_REMEDY = f"{ADDRESS_REMEDY} (in development: webhooks up --allow-loopback)"
