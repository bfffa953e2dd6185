"""Safeguards of TLS and tokens are needed: with one switched off, the test that guards it fails."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from tests.mutation.left_out import Change, replaced
from tests.net import pairs
from tests.security import material, test_layer, test_tls, test_tokens
from tests.security.material import client
from tests.server import raw
from tidelog.errors import LogError
from tidelog.net import tls
from tidelog.net.connection import FrameConnection
from tidelog.net.endpoint import Endpoint
from tidelog.net.security import ClientSecurity, ServerSecurity
from tidelog.net.tls import TlsLayer
from tidelog.server.reception import Reception

WAIT_SECONDS: Final = 2.0
"""What never happens is waited for no longer than this."""
CAUGHT: Final = (AssertionError, LogError, TimeoutError, OSError, pytest.fail.Exception)

Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    test: Callable[[Run], None]


def nothing(*_: Any, **__: Any) -> None:
    """Leaves a step out."""


def lax(made: Callable[[Any], ssl.SSLContext | None]) -> Callable[[Any], ssl.SSLContext | None]:
    """Certificates are not asked for, or not looked at."""

    def change(self: Any) -> ssl.SSLContext | None:
        context = made(self)
        if context is not None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    return change


def nameless(
    made: Callable[[Any], ssl.SSLContext | None],
) -> Callable[[Any], ssl.SSLContext | None]:
    """Any certificate of the CA will do."""

    def change(self: Any) -> ssl.SSLContext | None:
        context = made(self)
        if context is not None:
            context.check_hostname = False
        return context

    return change


def first_token_only(_: Any) -> Callable[[ServerSecurity, str], bool]:
    return lambda self, token: not self.tokens or token == min(self.tokens)


def lenient(_: Any) -> Callable[[ClientSecurity, Endpoint], ClientSecurity]:
    return lambda self, endpoint: replace(self, tls=endpoint.tls)


def in_plain_text(_: Any) -> Callable[[TlsLayer, Any], None]:
    """What is sent before the handshake is complete leaves at once."""
    return lambda self, data: self._below.write(data)


def cut_off(_: Any) -> Callable[[TlsLayer], None]:
    return lambda self: self._below.abort()


def unbounded(accept: Callable[[Reception], FrameConnection]) -> Callable[..., FrameConnection]:
    """Those that shake hands do not count."""

    def change(self: Reception) -> FrameConnection:
        connection = accept(self)
        self._sessions.clear()
        return connection

    return change


MUTANTS: Final = (
    Mutant(
        "any token is good",
        replaced(ServerSecurity, "admits", lambda _: lambda self, token: True),
        lambda run: test_tokens.test_each_known_token_opens_the_door_and_no_other(
            run, Path(), "tcp"
        ),
    ),
    Mutant(
        "only one of the tokens is known",
        replaced(ServerSecurity, "admits", first_token_only),
        lambda run: test_tokens.test_each_known_token_opens_the_door_and_no_other(
            run, Path(), "tls"
        ),
    ),
    Mutant(
        "a client takes any certificate",
        replaced(ClientSecurity, "ssl_context", lax),
        lambda run: test_tls.test_a_client_refuses_a_server_that_it_cannot_trust(
            run, "stranger", client(), ""
        ),
    ),
    Mutant(
        "a client shows its token before it knows to whom",
        replaced(ClientSecurity, "ssl_context", lax),
        test_tls.test_a_client_shows_its_token_to_nobody_who_has_no_good_certificate,
    ),
    Mutant(
        "a client does not look at the name",
        replaced(ClientSecurity, "ssl_context", nameless),
        lambda run: test_tls.test_a_client_refuses_a_server_that_it_cannot_trust(
            run, "elsewhere", client(), ""
        ),
    ),
    Mutant(
        "TLS is left out although it was insisted on",
        replaced(ClientSecurity, "for_endpoint", lenient),
        test_tls.test_tls_that_is_insisted_on_is_not_left_out,
    ),
    Mutant(
        "a server needs no certificate of its clients",
        replaced(ServerSecurity, "ssl_context", lax),
        lambda run: test_tls.test_a_client_without_a_good_certificate_is_refused_and_told(
            run, pytest.MonkeyPatch(), client(), "", ssl.TLSVersion.TLSv1_3
        ),
    ),
    Mutant(
        "what is sent before the handshake leaves in plain text",
        replaced(TlsLayer, "write", in_plain_text),
        lambda run: test_tls.test_a_client_says_nothing_in_plain_text_to_a_server_without_tls(
            run, b""
        ),
    ),
    Mutant(
        "a peer in plain text is not noticed",
        replaced(TlsLayer, "_meet_plain_peer", lambda _: nothing),
        test_tls.test_a_client_in_plain_text_is_told_to_use_tls,
    ),
    Mutant(
        "a handshake may take for ever",
        replaced(FrameConnection, "_on_hello_deadline", lambda _: nothing),
        lambda run: test_tls.test_a_handshake_that_takes_too_long_is_ended_while_others_are_served(
            run, b"\x16"
        ),
    ),
    Mutant(
        "connections in their handshake are not bounded",
        replaced(Reception, "_accept", unbounded),
        test_tls.test_connections_in_their_handshake_count_and_are_bounded,
    ),
    Mutant(
        "the end of a connection cuts its last words off",
        replaced(TlsLayer, "write_eof", cut_off),
        test_layer.test_a_large_answer_is_delivered_before_the_end,
    ),
    Mutant(
        "what was asked to end in the handshake does not",
        replaced(TlsLayer, "_end_if_asked", lambda _: nothing),
        test_layer.test_a_side_that_closes_in_the_handshake_still_says_what_it_had_to_say,
    ),
    Mutant(
        "what arrived before a pause is forgotten after it",
        replaced(TlsLayer, "resume_reading", lambda _: lambda self: self._below.resume_reading()),
        test_layer.test_a_side_that_pauses_holds_the_other_one_back_and_loses_nothing,
    ),
    Mutant(
        "a side that pauses goes on receiving",
        replaced(TlsLayer, "pause_reading", lambda _: nothing),
        test_layer.test_a_side_that_pauses_holds_the_other_one_back_and_loses_nothing,
    ),
    Mutant(
        "a client is not told why its certificate was refused",
        replaced(tls, "_REFUSED_CERTIFICATE", lambda _: ()),
        lambda run: test_tls.test_a_client_without_a_good_certificate_is_refused_and_told(
            run,
            pytest.MonkeyPatch(),
            client("stranger"),
            "refuses the certificate",
            ssl.TLSVersion.TLSv1_3,
        ),
    ),
)


def by_name(mutant: Mutant) -> str:
    return mutant.name


# A test that fails half-way leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
@pytest.mark.parametrize("mutant", MUTANTS, ids=by_name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    run_in_loop = partial(material.run, asyncio.new_event_loop)
    with (
        mutant.change(),
        patch.object(raw, "WAIT_SECONDS", WAIT_SECONDS),
        patch.object(pairs, "WAIT_SECONDS", WAIT_SECONDS),
        patch.object(material, "WAIT_SECONDS", WAIT_SECONDS),
        pytest.raises(CAUGHT),
    ):
        mutant.test(run_in_loop)
    gc.collect()
