# SPDX-License-Identifier: Apache-2.0
"""What an audit finds by names: secrets by those of variables, and accounts that share a number."""

from __future__ import annotations

import pytest

from cellblock.attest.audit import audit
from cellblock.attest.policy import Policy
from tests.attest.conftest import MakeSubject, WritePolicy
from tests.attest.test_audit import found
from tests.oci.layers import member


@pytest.fixture
def policy(write_policy: WritePolicy) -> Policy:
    return write_policy("")


@pytest.mark.parametrize(
    "given",
    [
        *(
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG",
            "GITHUB_TOKEN=hunter2",
            "MYSQL_ROOT_PASSWORD=hunter2",
        ),
        *("RESTIC_PASSWORD=/starts/with/a/slash", "OPENAI_API_KEY=hunter2", "app_secret=hunter2"),
        *(
            "PGPASSWORD=hunter2",
            "SSHPASS=hunter2",
            "MYSQL_PWD=hunter2",
            "SLURM_JWT=hunter2",
            "RPCSECRET=hunter2",
        ),
        "http_proxy=http://user:hunter2@proxy.example:3128",
    ],
)
def test_a_secret_in_the_configuration_is_found_by_the_variables_name(
    given: str, make: MakeSubject, policy: Policy
) -> None:
    name, _, value = given.partition("=")
    for settings, history, what in (
        ({"Env": ["PATH=/bin", given]}, [], f"{name} of its environment holds a secret"),
        ({"Labels": {f"org.example.{name}": value}}, [], f"org.example.{name} of its labels holds a secret"),
    ):
        (finding,) = audit([make([], settings=settings, history=history)], policy).findings
        assert (finding.check, finding.what, finding.package) == ("secret", what, finding.what.split()[0])
        assert value not in str(finding.to_json())
    if "proxy" not in name:
        command = f"RUN /bin/sh -c export {given} && make"
        assert found(policy, make([], history=[command])) == [
            f"secret worker its history gives {name} a secret"
        ]
        started = {"Cmd": ["sh", "-c", f"{given} exec app"]}
        assert found(policy, make([], settings=started)) == [
            f"secret worker its command gives {name} a secret"
        ]


def test_variables_about_a_secret_are_none(make: MakeSubject, policy: Policy) -> None:
    names = (
        *("RESTIC_PASSWORD_FILE=/run/secrets/x", "RESTIC_PASSWORD_COMMAND=cat x", "TOKENIZERS_PARALLELISM=0"),
        *("AWS_ACCESS_KEY_ID=x", "SSH_KEYS=x", "GITHUB_TOKEN=", "COMPASS=x", "VAULT_TOKEN_TTL=1h"),
        *("http_proxy=http://proxy.example:3128", "PWD=/x", "OLDPWD=/x", "PGPASSFILE=/x"),
        "GOOGLE_APPLICATION_CREDENTIALS=/run/secrets/x",
    )
    history = ["RUN GITHUB_TOKEN=$TOKEN make", "COPY password=x.txt /"[:4], "ENV PASSWORD_FILE=/run/x"]
    assert found(policy, make([], settings={"Env": list(names)}, history=history)) == []


def test_two_accounts_of_one_number_are_found(make: MakeSubject, policy: Policy) -> None:
    """`users: bob` with Slurm's uid was built, and passed."""
    passwd = "root:x:0:0::/:/bin/sh\nslurm:x:64030:64030::/:/x\nbob:x:64030:1000::/home/bob:/bin/sh\n"
    group = "root:x:0:\nslurm:x:64030:\nbob:x:1000:\nusers:x:1000:\n"
    assert found(policy, make([member("etc/passwd", passwd), member("etc/group", group)])) == [
        "account worker has groups bob and users with one gid, 1000",
        "account worker has users slurm and bob with one uid, 64030",
    ]
