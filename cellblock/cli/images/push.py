# SPDX-License-Identifier: Apache-2.0
"""`build.py push`: sends built images to a registry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption, SitesOption, VariantOption, image_names

if TYPE_CHECKING:
    pass


def push(
    repository: Annotated[str, typer.Argument(help="Where to: HOST[:PORT]/PATH.", metavar="REPO")],
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Images to push (default: those a cluster runs).", autocompletion=image_names),
    ] = None,
    variant: VariantOption = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Tag (default: the variant's name). May be repeated.")
    ] = None,
    digests: Annotated[
        Path | None, typer.Option("--digests", help="Write tags and digests here as JSON, for deployments.")
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            "--from", help="store (what `build` made), engine (podman's and buildah's), or oci:DIR."
        ),
    ] = "store",
    per_arch: Annotated[
        bool, typer.Option("--per-arch", help="Tag TAG-ARCHITECTURE, for --index to join.")
    ] = False,
    index: Annotated[
        bool,
        typer.Option("--index", help="Send nothing: join TAG-amd64 and TAG-arm64 in the registry to TAG."),
    ] = False,
    arch: Annotated[
        str | None, typer.Option("--arch", help="With --index: which must be there, for example amd64,arm64.")
    ] = None,
    referrers: Annotated[
        bool, typer.Option("--referrers/--no-referrers", help="With SBOM, provenance and signatures.")
    ] = True,
    spread: Annotated[
        bool,
        typer.Option("--spread", help="Divide files into layers by package: an update moves few bytes."),
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Push nothing in which `build.py audit` finds a fault.")
    ] = True,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="What the audit accepts (default: images/policy.yaml).")
    ] = None,
    attest: Annotated[
        bool, typer.Option("--attest", help="Attach SBOM and provenance first (see docs/attest.md).")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Sign, for the names that are pushed: PEM, env://VARIABLE, or cosign's."),
    ] = None,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Sign by cosign with the identity of the CI job (Sigstore).")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=32, help="Requests at a time.")] = 4,
    tls_verify: Annotated[
        bool, typer.Option("--tls-verify/--no-tls-verify", help="Check the registry's certificate.")
    ] = True,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Speak http; loopback needs no such permission.")
    ] = False,
    ca: Annotated[
        Path | None, typer.Option("--ca", help="File of certificate authorities to trust as well.")
    ] = None,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Push images to a registry: what it lacks, resumed after a break, tags last."""
    from cellblock.attest.signing import signer_of_option
    from cellblock.cli.views import make_view
    from cellblock.errors import UsageError
    from cellblock.events import Events
    from cellblock.oci.registry.connection import ConnectionOptions
    from cellblock.release.attesting import AttestRequest
    from cellblock.release.auditing import audit_gate
    from cellblock.release.publish import PublishRequest, publish, publish_indexes, write_digests
    from cellblock.release.signing import require_cosign, sign_keyless

    if arch and not index:
        raise UsageError("--arch says what --index joins", hint="add --index, or leave --arch out")
    if index and per_arch:
        raise UsageError("--index joins what --per-arch pushed before", hint="run push twice")
    if digests and not digests.absolute().parent.is_dir():
        raise UsageError(f"--digests {digests}: its folder does not exist", hint="make it, then push")
    if digests and not os.access(digests.absolute().parent, os.W_OK):
        raise UsageError(f"--digests {digests}: its folder cannot be written", hint="name another, then push")
    if ca and not ca.is_file():
        raise UsageError(
            f"--ca {ca}: there is no such file of certificate authorities", hint="it must be PEM"
        )
    if spread and index:
        raise UsageError(
            "--index joins what is in the registry; it sends no layers",
            hint="give --spread with --per-arch, to each push before",
        )
    if keyless and key:
        raise UsageError("--keyless signs without a key", hint="leave --key or --keyless out")
    if keyless:
        require_cosign()
    events = Events()
    signer = signer_of_option(key)
    request = PublishRequest(
        repository,
        tuple(images or ()),
        variant,
        tuple(tag or ()),
        source,
        per_arch,
        referrers,
        jobs,
        connection=ConnectionOptions(plain_http=plain_http, verify_tls=tls_verify, ca=ca, connections=jobs),
        before_push=audit_gate(policy, events, sites or ()) if audit else None,
        spread=spread,
        attest=AttestRequest(signer, sites=tuple(sites or ())) if attest or signer else None,
        sites=tuple(sites or ()),
    )
    with make_view(log, events):
        if index:
            wanted = [each.strip() for each in (arch or "").split(",") if each.strip()]
            published = publish_indexes(request, wanted, events)
        else:
            published = publish(request, events)
        if keyless:
            sign_keyless([f"{image.repository}@{image.digest}" for image in published.images])
    if digests:
        write_digests(published, digests)
    if as_json:
        print_json({"images": published.digests(), "seconds": round(published.seconds, 3)})
        return
    for image in published.images:
        print(f"{image.repository}:{image.tags[0]}@{image.digest}")
    sent, mounted = (sum(getattr(image, name) for image in published.images) for name in ("sent", "mounted"))
    changed = sum(image.changed for image in published.images)
    rate = f" at {sent / 1e6 / max(published.push_s, 0.001):.1f} MB/s" if sent else ""
    print(
        f"{changed} of {len(published.images)} images new or changed; {sent / 1e6:.1f} MB sent{rate}, "
        f"{mounted / 1e6:.1f} MB mounted, in {published.seconds:.1f} s"
    )
