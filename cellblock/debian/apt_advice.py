# SPDX-License-Identifier: Apache-2.0
"""Names the remedy for a failure of apt, from the message that apt printed."""

from __future__ import annotations

import re

# The answer of a mirror: `  400  Bad Request [IP: ...]` after `Err:`, or at the end of `Failed to fetch URL`.
_ANSWER = re.compile(
    r"^(?:Err:.*\n\s+|\s+|E: Failed to fetch \S+\s+)([345]\d\d)  ?(\w[\w -]*?)(?: \[IP|$)", re.MULTILINE
)
# Those that say: not here, now or at all; and not that what is here is not signed.
_GONE = ("404", "410")
# Those that say: ask again.
_BUSY = ("408", "425", "429")

_ADVICE = {
    "does the network require authentication": "something answers in the mirror's place, such as a login "
    "page: open the way to the mirror, or name another with --mirror",
    "Temporary failure resolving": "no name can be looked up, as without a network: check the network, or "
    "name another mirror with --mirror",
    "Could not resolve": "check the network, or name another mirror with --mirror",
    "Could not connect": "check the network, or name another mirror with --mirror",
    "No space left on device": "free disk space (`df -h`, `build.py cache trim`)",
    "NO_PUBKEY": "install the distribution's keyring package (`build.py doctor` names it)",
    "is not signed": "install the distribution's keyring package (`build.py doctor` names it)",
    "does not have a Release file": "check the address of the mirror, or name another with --mirror",
    "Failed to fetch": "check the mirror, or name another with --mirror",
    "Release file for": "the mirror's index is too old; name another mirror with --mirror",
}


def apt_advice(text: str) -> str:
    """The remedy for what apt printed; "" when none is known."""
    answer = _ANSWER.search(text)
    if answer and "NO_PUBKEY" not in text:
        status, words = answer.groups()
        if status in _BUSY or status.startswith("5"):
            return (
                f"the mirror cannot answer now ({status} {words}): run this again later, or name another "
                "with --mirror"
            )
        what = "has no such archive" if status in _GONE else "refuses"
        return f"the mirror {what} ({status} {words}): check its address, or name another with --mirror"
    return next((advice for symptom, advice in _ADVICE.items() if symptom in text), "")
