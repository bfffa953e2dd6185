"""Where the replicas of a datastore are.  No state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from tidelog.errors import BadAddress
from tidelog.limits import SESSION_REPLICAS_MAX
from tidelog.net.endpoint import Endpoint, parse_endpoint

ENVIRONMENT: Final = "TIDELOG_REPLICATION_ENDPOINT"
"""Addresses of replicas, with commas between them; unset or empty: there are none."""


def find_replicas(replicas: str | Sequence[str] | None) -> tuple[Endpoint, ...]:
    """The replicas that were named, else those that the environment names."""
    if replicas is None:
        named = [part.strip() for part in os.environ.get(ENVIRONMENT, "").split(",")]
        replicas = [] if named == [""] else named
    elif isinstance(replicas, str):
        replicas = [replicas]
    endpoints = tuple(_endpoint(text) for text in replicas)
    if len(endpoints) > SESSION_REPLICAS_MAX:
        raise BadAddress(
            f"{len(endpoints)} replicas, but at most {SESSION_REPLICAS_MAX} are served"
        )
    for endpoint in endpoints:
        if endpoints.count(endpoint) > 1:
            raise BadAddress(f"{endpoint} is named twice: each replica is one service")
    return endpoints


def _endpoint(text: str) -> Endpoint:
    try:
        return parse_endpoint(text)
    except BadAddress as error:
        raise BadAddress(
            f"{text!r} is no address of a replica: write tcp://host:port, tls://host:port or "
            f"unix:///path, several with commas between them ({error})"
        ) from error
