# SPDX-License-Identifier: Apache-2.0
"""Defines errors of registries and of the network to them: each names the host and the next step."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from cellblock.errors import CellblockError
from cellblock.retries import LONGEST_S, retry_after


class RegistryError(CellblockError):
    """A registry refused. `status` is HTTP's (0: there was no answer), `codes` are those of its body."""

    def __init__(self, message: str, *, hint: str = "", status: int = 0, codes: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.codes = codes


class Transient(RegistryError):
    """May work when tried again, after `retry_after_s` when the registry named a time."""

    retry_after_s: float | None = None


class RateLimited(Transient):
    """429: too many requests for now."""


class ServerFailed(Transient):
    """5xx: the registry, or what stands in front of it, failed."""


class ConnectionLost(Transient):
    """The connection broke, or gave nothing for too long."""


class RegistryUnreachable(ConnectionLost):
    """No connection could be made at all."""

    refused = False
    """Whether the host is there, and nothing listens: it may be starting again."""


class TokenExpired(Transient):
    """A token ended while a blob was being sent with it."""

    retry_after_s = 0.0


class RegistryFull(RegistryError):
    """The registry has no room left, or a quota is used up."""


class CredentialsMissing(RegistryError):
    """The registry asks for credentials, and none were found."""


class Denied(RegistryError):
    """The registry refuses the credentials."""


class NotInRegistry(RegistryError):
    """404: no such repository, manifest, blob or upload."""


class WrongDigest(RegistryError):
    """What arrived has another digest than what was sent or asked for."""


class SpeaksPlainHttp(RegistryError):
    """The host answered a TLS handshake with something else."""


_HALF_A_DAY_S = 43200
_FULL_WORDS = (os.strerror(errno.ENOSPC).lower(), "disk full", "quota", "insufficient storage")


def answer_error(
    host: str, doing: str, status: int, headers: Mapping[str, str], body: bytes
) -> RegistryError:
    """The error for an answer of `status` >= 400 that is not about who asks.

    `doing` completes "HOST: could not ...".
    """
    codes, said = _said(body)
    text = f"{host}: could not {doing}: {status}{f', {said}' if said else ''}"
    if status == 507 or (status >= 400 and _is_full(said)):
        return RegistryFull(
            f"{text}: the registry has no room left",
            hint=f"free space or raise the quota at {host}, then push again: what it has is not sent again",
            status=status,
            codes=codes,
        )
    if status == 429:
        wait = retry_after(headers)
        until = _at(wait) if wait and wait < LONGEST_S else ""
        limited = RateLimited(
            f"{text}: too many requests for now{f', until {until}' if until else ''}",
            hint=f"run this again {f'after {until}' if until else 'later'}, with fewer --jobs, "
            "or with credentials that have a higher limit",
            status=status,
            codes=codes,
        )
        limited.retry_after_s = wait
        return limited
    if status >= 500 or status in (408, 425):
        failed = ServerFailed(
            text, hint=f"look at the log of {host}; then run this again", status=status, codes=codes
        )
        failed.retry_after_s = retry_after(headers)
        return failed
    if status == 404:
        return NotInRegistry(
            text, hint="check the name; see what is there with `skopeo list-tags`", status=404
        )
    if status == 405 or "UNSUPPORTED" in codes:
        return RegistryError(
            f"{text}: the registry does not allow that; it may be read-only (under maintenance, or a mirror)",
            hint="push to another registry, or ask who runs it; then push again",
            status=status,
            codes=codes,
        )
    if status == 413:
        return RegistryError(
            f"{text}: something before the registry limits the size of a request",
            hint="raise that limit (a reverse proxy's body size)",
            status=status,
            codes=codes,
        )
    return RegistryError(
        text, hint="what the registry said names the reason; its log has more", status=status, codes=codes
    )


def credentials_missing(host: str, message: str, places: Sequence[str]) -> CredentialsMissing:
    """The error where a registry wants credentials and none were found at `places`."""
    looked = "".join(f"\n    - {place}" for place in places)
    return CredentialsMissing(
        f"{message}\n  looked for in:{looked}",
        hint=f"log in (`skopeo login {host}`, `podman login`, `docker login`), or set "
        "CELLBLOCK_REGISTRY_USER and CELLBLOCK_REGISTRY_PASSWORD",
        status=401,
    )


def not_accepted(who: str, name: str, source: str, status: int) -> Denied:
    """The error where `who`, HOST or "HOST: its ...", refuses the credentials of `name` from `source`."""
    host = who.partition(": ")[0]
    return Denied(
        f"{who}: it does not accept {name} and the secret from {source}",
        hint=f"log in again: `skopeo login {host}`",
        status=status,
    )


def _at(wait_s: float) -> str:
    """The time in `wait_s` seconds, as people of any time zone read it."""
    form = "%H:%M:%S UTC" if wait_s < _HALF_A_DAY_S else "%Y-%m-%d %H:%M UTC"
    return datetime.fromtimestamp(time.time() + wait_s, tz=timezone.utc).strftime(form)


def _said(body: bytes) -> tuple[tuple[str, ...], str]:
    """Codes, and one line of text, from an error's body (distribution-spec 1.1, "Error Codes")."""
    try:
        errors: list[Mapping[str, Any]] = [dict(each) for each in json.loads(body)["errors"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        # A proxy's page: its first words are better than nothing. What moves cursors is left out.
        text = " ".join(body[:400].decode(errors="replace").split())
        return (), "".join(each for each in text if each.isprintable())[:200]
    codes = tuple(str(each.get("code", "")) for each in errors)
    texts = []
    for each in errors[:3]:
        text = str(each.get("message") or each.get("code") or "")
        detail = each.get("detail")
        number = _number(detail)
        if number is not None:
            detail = os.strerror(number)
        texts.append(f"{text} ({str(detail)[:200]})" if detail else text)
    return codes, "; ".join(text for text in texts if text)


def _is_full(said: str) -> bool:
    return any(word in said.lower() for word in _FULL_WORDS)


def _number(detail: Any) -> int | None:
    """errno of a storage driver's error: docker's registry has it as `Err` in `Enclosed` of the detail."""
    enclosed = detail.get("Enclosed") if isinstance(detail, dict) else None
    number = enclosed.get("Err") if isinstance(enclosed, dict) else None
    return number if isinstance(number, int) else None
