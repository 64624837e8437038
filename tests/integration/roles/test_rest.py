# SPDX-License-Identifier: Apache-2.0
"""slurmrestd on each release: what a token gives, and what is in reach of who gets into it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cellblock.cluster import status
from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.engine.container_specs import container_name, network_name
from cellblock.cluster.facts import state
from cellblock.cluster.rotating.rotation import rotate
from cellblock.cluster.tokens import Token, make_token
from cellblock.cluster.up import bring_up
from cellblock.errors import UsageError
from cellblock.events import Events, Message
from tests import documented
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.roles.rest_api import USER, VERSIONS, Rest
from tests.ports import free_port

pytestmark = pytest.mark.integration

CLIENT = Path(__file__).with_name("rest_client.py")


@pytest.fixture(scope="module", params=[default_variant(), *other_variants()])
def rest(request: pytest.FixtureRequest) -> Iterator[Rest]:
    """A cluster with accounting and a REST API."""
    file = f"accounting: {{}}\nrest: {{port: {free_port()}}}\nnode_sets: [{{name: worker, count: 1}}]\n"
    with running_cluster("rest", request.param, text=file) as running:
        yield Rest(running)


def typed(rest: Rest, text: str, folder: Path) -> str:
    """Type lines of the page to this cluster."""
    text = text.replace("http://127.0.0.1:6820", rest.url).replace("v0.0.42", rest.version)
    text = text.replace("build.py token", f"build.py token --name {rest.name}")
    if rest.version == VERSIONS["22.05"]:
        text = text.replace('["PATH=/usr/bin:/bin"]', '{"PATH": "/usr/bin:/bin"}')
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return documented.type_line(text, folder, variables={"PATH": path})


def test_what_the_page_says_works(rest: Rest, tmp_path: Path) -> None:
    asked, job, generated = documented.blocks_for("rest.md", "test_what_the_page_says_works")
    assert "jobs" in json.loads(typed(rest, "\n".join(asked.lines), tmp_path))
    assert "by-rest" in typed(rest, "set -e\n" + "\n".join(job.lines), tmp_path)
    answer = json.loads((tmp_path / "answer.json").read_text())
    rest.cluster.wait_until(
        "the job is cancelled", lambda: rest.cluster.job(str(answer["job_id"]))["JobState"] == "CANCELLED"
    )
    # A client made from its own description.
    fetch, generate = "\n".join(generated.lines[:-1]), generated.lines[-1]
    typed(rest, fetch, tmp_path)
    if rest.version == VERSIONS["22.05"]:
        correct_versions(tmp_path / "slurm.json")
    typed(rest, generate, tmp_path)
    token = rest.token()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "client"), "SLURM_JWT": token}
    done = subprocess.run(
        [sys.executable, CLIENT, rest.url, rest.version],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["name"], seen["user"], seen["nodes"]) == ("by-client", USER, "worker-1")
    assert "CANCELLED" in seen["ended"]


def correct_versions(path: Path) -> None:
    """As the page says for 22.05."""
    document = json.loads(path.read_text())
    for name in ("v0.0.38_meta", "dbv0.0.38_meta"):
        numbers = document["components"]["schemas"][name]["properties"]["Slurm"]["properties"]["version"]
        for one in numbers["properties"].values():
            one["type"] = "integer"
    path.write_text(json.dumps(document))


@pytest.mark.others_at_night
def test_tokens_are_made_as_the_page_says(rest: Rest, tmp_path: Path) -> None:
    short, told = documented.lines_for("rest.md", "test_tokens_are_made_as_the_page_says")
    assert not rest.ask("jobs", typed(rest, short, tmp_path).strip().removeprefix("SLURM_JWT=")).refused
    made = Token(**json.loads(typed(rest, told, tmp_path)))
    assert (made.user, made.lifetime_s, list(made.urls)) == (USER, 8 * 3600, [rest.url])
    assert abs(made.expires - time.time() - made.lifetime_s) < 60
    assert not rest.ask("jobs", made.token).refused


def test_a_job_by_rest_is_in_the_jail_as_its_user(rest: Rest) -> None:
    # What another way would have to bring, too, does not lead out.
    out = [f"{name}=1" for name in ("_SLURM_SPANK_OPTION_spank_jail_no_jail", "SLURM_JAIL", "SLURM_SPANK_X")]
    script = f"{{ id -un; cat /etc/cellblock/jail-release; test ! -e /mnt/jail; }} >/home/{USER}/seen"
    answer = rest.submit(rest.token(), script, environment=["PATH=/usr/bin:/bin", *out])
    assert not answer.refused, answer
    number = str(answer.document["job_id"])
    rest.cluster.wait_until("it ends", lambda: rest.cluster.job(number)["JobState"] == "COMPLETED")
    assert rest.cluster.job(number)["UserId"].startswith(f"{USER}(")
    seen = rest.cluster.jail("cat", f"/home/{USER}/seen").ok().splitlines()
    assert seen[0] == USER
    assert f"SLURM_RELEASE={rest.cluster.status.release}" in seen


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_what_is_no_token_of_the_cluster_is_refused(rest: Rest) -> None:
    good = rest.token()
    head, payload, signature = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    root = encoded({**claims, "sun": "root"})
    guessed = f"{encoded({'alg': 'HS256', 'typ': 'JWT'})}.{root}"
    signed = hmac.new(b"\0" * 32, guessed.encode(), hashlib.sha256).digest()
    refused = {
        "another's claims": f"{head}.{root}.{signature}",
        "no algorithm": f"{encoded({'alg': 'none', 'typ': 'JWT'})}.{root}.",
        "a key that one guesses": f"{guessed}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}",
        "words": "x",
    }
    assert not rest.ask("jobs", good).refused
    assert not rest.ask(f"/slurmdb/{rest.version}/jobs", good).refused
    for what, token in refused.items():
        for user in ("root", USER):
            assert rest.ask("jobs", token, user=user).refused, what
            assert rest.ask(f"/slurmdb/{rest.version}/jobs", token, user=user).refused, what
            assert rest.submit(token, "true", user=user).refused, what
    # Without any, not even the description.
    assert rest.ask("/openapi/v3").status == 401
    assert rest.ask("jobs").status == 401


def test_a_token_is_good_for_its_time(rest: Rest) -> None:
    token = rest.token(lifetime="2s")
    rest.cluster.wait_until("it is over", lambda: rest.ask("jobs", token).refused)
    assert rest.submit(token, "true").refused
    assert rest.ask(f"/slurmdb/{rest.version}/jobs", token).refused


def test_a_token_of_a_user_gives_no_other_ids_and_nobodys_jobs(rest: Rest) -> None:
    token = rest.token()
    for user in ("root", "slurm", "munge"):
        assert rest.ask("jobs", token, user=user).refused, user
        assert rest.submit(token, "true", user=user).refused, user
    for more in ({"user_id": "0"}, {"user_id": "64030"}, {"group_id": "0"}, {"group_id": "42"}):
        assert rest.submit(token, "true", **more).refused, more
    held = ("sbatch", "-D/", "-o/dev/null", "--parsable", "--hold", "--wrap=true")
    number = rest.cluster.on("controller", *held)
    # 24.11 and 26.05 say in `status` that they refuse.
    rest.ask(f"job/{number.ok().strip()}", token, method="DELETE")
    assert rest.cluster.job(number.out.strip())["JobState"] == "PENDING"
    rest.cluster.on("controller", "scancel", number.out.strip()).ok()
    changed = rest.ask(
        f"/slurmdb/{rest.version}/users",
        token,
        body={"users": [{"name": USER, "administrator_level": ["Administrator"]}]},
    )
    level = ("sacctmgr", "-nP", "show", "user", USER, "format=adminlevel")
    assert changed.refused
    assert rest.cluster.on("controller", *level).ok().strip() == "None"


def test_nobody_in_the_jail_makes_tokens(rest: Rest) -> None:
    for user in ("root", USER):
        for more in ((), (f"username={USER}",), ("username=root",)):
            made = rest.cluster.jail("scontrol", "token", *more, user=user)
            assert made.status != 0, (user, more)
            assert "SLURM_JWT" not in made.out
    # As who root inside may become: munge, SlurmUser, nobody.
    for uid in ("65520", "64030", "65534"):
        made = rest.cluster.jail("setpriv", f"--reuid={uid}", "--clear-groups", "scontrol", "token")
        assert "SLURM_JWT" not in made.out, uid


def test_it_is_reached_from_the_jail_and_gives_nothing_without_a_token(rest: Rest) -> None:
    script = 'exec 3<>/dev/tcp/rest/6820; printf "GET /openapi/v3 HTTP/1.0\\r\\n\\r\\n" >&3; head -1 <&3'
    where = ("srun", "-D/", "bash", "-c", script)
    assert " 401 " in rest.cluster.jail(*where, user=USER).ok()


def test_system_users_get_no_token_and_what_roots_is_is_said(rest: Rest) -> None:
    for user, says in (
        ("munge", "a system user's"),
        ("nobody", "a system user's"),
        ("noone", "no user noone"),
    ):
        with pytest.raises(UsageError, match=says):
            rest.token(user)
    # getent takes a number for a uid, and slurmctld for a name.
    with pytest.raises(UsageError, match="no user 1000"):
        rest.token("1000")
    events, said = Events(), []
    events.subscribe(lambda event: said.append(event.text) if isinstance(event, Message) else None)
    token = make_token(rest.name, "root", "1m", events).token
    assert any("root to Slurm" in text for text in said)
    assert not rest.ask("jobs", token, user="root").refused


def test_who_gets_into_slurmrestd_finds_no_key_and_no_right(rest: Rest) -> None:
    cluster = rest.cluster
    script = 'for p in /proc/[0-9]*; do echo "$(cat $p/comm)"; grep -E "^(Uid|Cap|NoNew)" $p/status; done'
    lines = cluster.on("rest", "sh", "-c", script).ok().splitlines()
    start = lines.index("slurmrestd")
    fields = dict(line.split(":", 1) for line in lines[start + 1 : start + 8])
    assert fields["Uid"].split() == ["65523"] * 4
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[capabilities], 16) == 0, capabilities
    assert fields["NoNewPrivs"].strip() == "1"
    first = cluster.on("rest", "stat", "-c", "%u", "/proc/1").ok()
    assert first.strip() == "65523"
    # Nothing is there, and nothing that the container mounts is readable to its user either.
    keys = [
        path.read_bytes() for path in (state.folder(rest.name) / "secrets").rglob("*key") if path.is_file()
    ]
    assert len(keys) >= 5
    found = cluster.on("rest", "find", "/", "-xdev", "(", "-name", "*.key", "-o", "-name", "*.socket*", ")")
    assert found.out.split() == []
    assert cluster.on("rest", "sh", "-c", "ls -A /run/munge /run/secrets /mnt 2>/dev/null").out.split() in (
        [],
        ["/mnt:"],
    )
    mounted = cluster.on("rest", "cut", "-d ", "-f5", "/proc/self/mountinfo").ok().split()
    assert {path for path in mounted if path.startswith(("/etc/slurm", "/var/lib", "/mnt"))} == {
        "/etc/slurm",
        "/var/lib/extrausers",
    }
    assert "/mnt/jail" not in mounted
    assert cluster.on("rest", "sh", "-c", ": >/x; : >/etc/slurm/x; : >/var/lib/extrausers/x").status != 0
    # The key is SlurmUser's alone, and not where it is not needed.
    for host, folder in (("controller", "slurmctld"), ("accounting", "slurmdbd")):
        mode = cluster.on(host, "stat", "-c", "%a %U", f"/run/{folder}/jwt_hs256.key").ok()
        assert mode.split() == ["400", "slurm"]
    for host in ("worker-1", "login", "database"):
        sought = cluster.on(host, "find", "/", "-xdev", "-name", "jwt*key")
        assert sought.out.split() == [], host


def test_what_is_no_request_is_refused_and_it_goes_on(rest: Rest) -> None:
    token = rest.token()
    submit = "job/submit"
    assert rest.ask(submit, token, body=b"{" * 5).refused
    assert rest.ask(submit, token, body=b"<job/>", kind="text/xml").refused
    assert rest.ask(submit, token, body=b"[" * 2_000_000).refused
    assert rest.ask("job/../../etc/passwd", token).refused
    # It reads no more than 6 MiB of a body, and ends the connection.
    with suppress(urllib.error.URLError, ConnectionError):
        assert rest.ask(submit, token, body=b" " * 60_000_000).refused
    with suppress(urllib.error.URLError, ConnectionError):
        assert rest.ask("jobs", "A" * 4_000_000).refused
    assert not rest.ask("jobs", token).refused


def test_its_memory_has_a_bound_and_it_goes_on(rest: Rest) -> None:
    name, port = f"cellblock-{rest.name}-bounded", free_port()
    files = state.folder(rest.name) / "config" / "slurm"
    options = ["--user=slurmrestd", "--cap-drop=all", "--read-only", f"--network={network_name(rest.name)}"]
    options += ["--env=CELLBLOCK_REST_MEMORY_MB=200", f"--volume={files}:/etc/slurm:ro"]
    # As `up` does: a process of ours may have lower limits than podman's defaults.
    options += ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", f"--publish=127.0.0.1:{port}:6820"]
    image = rest.cluster.result.build.images["rest"].reference
    environment = {**os.environ, **podman_environment()}
    podman = ["podman", "run", "--rm", "--detach", f"--name={name}", *options, image]
    subprocess.run(podman, check=True, capture_output=True, env=environment)
    try:
        rest.cluster.wait_until("it listens", lambda: answers(port))
        senders = [threading.Thread(target=send_much, args=(port, 40_000_000)) for _ in range(12)]
        shown = ["podman", "inspect", "--format={{.State.Pid}}", name]
        first = subprocess.run(shown, check=True, capture_output=True, text=True, env=environment).stdout
        peak_mb = 0
        for one in senders:
            one.start()
        while any(one.is_alive() for one in senders):
            peak_mb = max(peak_mb, memory_mb(int(first)))
            time.sleep(0.002)
        assert 0 < peak_mb < 150
        rest.cluster.wait_until("it answers again", lambda: answers(port))
    finally:
        subprocess.run(["podman", "rm", "--force", name], check=False, capture_output=True, env=environment)


def memory_mb(process: int) -> int:
    """The most memory, in MiB, that slurmrestd (this process or a child) has had; 0 before it starts.

    It is asked all the time: one that ends for lack of memory lives for a second.
    """
    with suppress(OSError, ValueError):
        status = Path(f"/proc/{process}/status").read_text()
        if status.startswith("Name:\tslurmrestd\n"):
            # One that has ended has no such line.
            return int(status.partition("VmHWM:")[2].partition("kB")[0] or 0) // 1024
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return max([memory_mb(int(child)) for child in children], default=0)
    return 0


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi/v3", timeout=5)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False
    return True


def send_much(port: int, size: int) -> None:
    """Send the most of a body, and hold the connection for some seconds."""
    head = f"POST /slurm/v0.0.42/job/submit HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head.encode())
        for _ in range(size // 65536):
            connection.sendall(b" " * 65536)
        connection.recv(1)


def test_a_new_key_refuses_old_tokens_and_jobs_go_on(rest: Rest, tmp_path: Path) -> None:
    (line,) = documented.lines_for("rest.md", "test_a_new_key_refuses_old_tokens_and_jobs_go_on")
    old = rest.token(lifetime="7d")
    number = str(rest.submit(old, "sleep 600").document["job_id"])
    rest.cluster.wait_until("it runs", lambda: rest.cluster.job(number)["JobState"] == "RUNNING")
    began = rest.cluster.job(number)["StartTime"]
    typed(rest, line, tmp_path)
    assert rest.ask("jobs", old).refused
    assert rest.ask(f"/slurmdb/{rest.version}/jobs", old).refused
    new = rest.token()
    assert not rest.ask("jobs", new).refused
    rest.cluster.wait_until(
        "slurmdbd answers", lambda: not rest.ask(f"/slurmdb/{rest.version}/jobs", new).refused
    )
    job = rest.cluster.job(number)
    assert (job["JobState"], job["StartTime"], job["Restarts"]) == ("RUNNING", began, "0")
    # The node is still slurmctld's: the job ends when it is told to, and another starts.
    assert not rest.ask(f"job/{number}", new, method="DELETE").refused
    rest.cluster.wait_until("it ends", lambda: rest.cluster.job(number)["JobState"] == "CANCELLED")
    rest.cluster.jail("srun", "-D/", "true", user=USER).ok()


@pytest.mark.others_at_night
def test_status_shows_it(rest: Rest) -> None:
    shown = documented.type_line(f"python3 build.py status --name {rest.name}", Path("/"))
    assert rest.url in shown
    assert f"{container_name(rest.name, 'rest')} " in shown
    assert [one.state for one in status(rest.name).containers if one.role == "rest"] == ["running"]


def test_slurmrestd_that_is_killed_is_there_again(rest: Rest) -> None:
    token = rest.token()
    kill = 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" != slurmrestd ] || kill -9 ${p#/proc/}; done; true'
    rest.cluster.on("rest", "sh", "-c", kill).ok()

    def there() -> bool:
        with suppress(OSError):
            return not rest.ask("jobs", token).refused
        return False

    rest.cluster.wait_until("it answers again", there)


@pytest.mark.others_at_night
def test_it_is_taken_out_of_a_cluster_that_runs_and_put_in_again(rest: Rest) -> None:
    token, with_it = rest.token(), rest.file.read_text()
    number = str(rest.submit(token, "sleep 600").document["job_id"])
    rest.cluster.wait_until("it runs", lambda: rest.cluster.job(number)["JobState"] == "RUNNING")
    try:
        rest.file.write_text("\n".join(line for line in with_it.splitlines() if not line.startswith("rest")))
        bring_up(rest.cluster.request, Events())
        assert status(rest.name).rest_urls == ()
        assert not list((state.folder(rest.name) / "secrets").rglob("jwt*"))
        assert rest.cluster.on("controller", "test", "-e", "/run/slurmctld/jwt_hs256.key").status != 0
        shown = rest.cluster.on("controller", "scontrol", "show", "config").ok()
        assert "auth/jwt" not in shown
    finally:
        rest.file.write_text(with_it)
        bring_up(rest.cluster.request, Events())
    # With a key of its own.
    assert rest.ask("jobs", token).refused
    assert not rest.ask("jobs", rest.token()).refused
    assert rest.cluster.job(number)["JobState"] == "RUNNING"
    rotate(rest.name, ["tokens"], Events())
    rest.cluster.on("controller", "scancel", number).ok()
