# SPDX-License-Identifier: Apache-2.0
"""The file of auth/slurm's keys, and tokens by one of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest

from cellblock.cluster.configuration import slurm_keys
from cellblock.cluster.configuration.slurm_keys import KeySet


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_the_file_of_a_set_is_read_again() -> None:
    one, other = slurm_keys.new_key(), slurm_keys.new_key()
    keys = KeySet((one, other), other.kid)
    assert slurm_keys.parse(slurm_keys.text(keys)) == keys
    assert keys.signing == other
    listed = json.loads(slurm_keys.text(keys))["keys"]
    assert [each.get("use") for each in listed] == [None, "default"]
    # At least 256 bits, as HS256 asks for, and without padding.
    assert all(len(decoded(each["k"])) >= 32 and "=" not in each["k"] for each in listed)
    assert one.secret != other.secret


@pytest.mark.parametrize("content", [b"", b"[]", b'{"keys": []}', b'{"keys": [{"kid": "a"}]}'])
def test_what_is_no_set_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|no set of keys"):
        slurm_keys.parse(content)


def test_a_token_is_signed_by_its_key_and_says_nobody() -> None:
    key = slurm_keys.new_key()
    header, grants, signature = slurm_keys.token_of_nobody(key).split(".")
    made = hmac.new(key.secret, f"{header}.{grants}".encode(), hashlib.sha256).digest()
    assert made == decoded(signature)
    assert json.loads(decoded(header)) == {"alg": "HS256", "typ": "JWT", "kid": key.kid}
    assert (json.loads(decoded(grants))["uid"], json.loads(decoded(grants))["gid"]) == (65534, 65534)
