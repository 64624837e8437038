# SPDX-License-Identifier: Apache-2.0
"""Runs commands in a container without a `podman exec` for each.

One `podman exec` is some 0.2 s of processor time: podman, conmon and runc twice. A test that waits asks five
times a second. So a small program in Perl, which every Debian image has, is started by `podman exec` once and
starts the commands: with the rights, limits, variables, namespaces and control groups that podman gave it.
"""

from __future__ import annotations

import os
import selectors
import struct
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

# A request: the lengths of the words and of the input, whether there is input, then both. Answers are frames:
# a kind, a length and that many bytes. Kinds: a (the request has arrived), o, e (of the output), x (status).
_PROGRAM = r"""
use POSIX (); use Fcntl;
sub take { my $b = '';
    while (length $b < $_[0]) { sysread(STDIN, $b, $_[0] - length $b, length $b) or exit } $b }
sub frame { my $b = pack('aN', $_[0], length $_[1]) . $_[1];
    while (length $b) { my $n = syswrite(STDOUT, $b) or exit; substr($b, 0, $n) = '' } }
sub nonblocking { fcntl($_[0], F_SETFL, fcntl($_[0], F_GETFL, 0) | O_NONBLOCK) }
$SIG{PIPE} = 'IGNORE';
for (;;) {
    my ($words, $length, $given) = unpack 'NNC', take(9);
    my @argv = split /\0/, take($words), -1;
    my $input = take($length);
    frame('a', '');
    my ($in, $feed, $out, $said, $err, $told);
    $given ? pipe($in, $feed) : open($in, '<', '/dev/null'); pipe($out, $said); pipe($err, $told);
    my $child = fork;
    if (!defined $child) { frame('e', "fork: $!\n"); frame('x', pack('N', 125)); next }
    if (!$child) {
        $SIG{PIPE} = 'DEFAULT'; POSIX::setsid();
        POSIX::dup2(fileno $in, 0); POSIX::dup2(fileno $said, 1); POSIX::dup2(fileno $told, 2);
        { exec { $argv[0] } @argv }
        my $error = $!; my $status = $error == POSIX::ENOENT ? 127 : 126;
        syswrite(STDERR, "$argv[0]: $error\n"); POSIX::_exit($status);
    }
    close $in; close $said; close $told;
    nonblocking($_) for grep { $_ } $feed, $out, $err;
    my %kinds = (fileno $out => [$out, 'o'], fileno $err => [$err, 'e']);
    my $status;
    while (%kinds) {
        if (!defined $status && waitpid($child, POSIX::WNOHANG) == $child) { $status = $? }
        my $over = defined $status;
        my ($reads, $writes) = ('', '');
        vec($reads, $_, 1) = 1 for keys %kinds;
        if ($feed && !length $input) { close $feed; undef $feed }
        vec($writes, fileno $feed, 1) = 1 if $feed;
        my $ready = select($reads, $writes, undef, $over ? 0 : 0.05);
        if ($ready > 0 && $feed && vec($writes, fileno $feed, 1)) {
            my $n = syswrite($feed, $input);
            defined $n ? substr($input, 0, $n) = '' : $!{EAGAIN} ? 0 : ($input = '');
        }
        my $more = 0;
        for my $number ($ready > 0 ? grep { vec($reads, $_, 1) } keys %kinds : ()) {
            my ($file, $kind) = @{$kinds{$number}};
            my $n = sysread($file, my $bytes, 65536);
            if ($n) { frame($kind, $bytes); $more = 1 }
            elsif (defined $n) { delete $kinds{$number} }
        }
        last if $over && !$more;
    }
    if (!defined $status) { waitpid($child, 0); $status = $? }
    frame('x', pack('N', $status & 127 ? 128 + ($status & 127) : $status >> 8));
}
"""
_REQUEST = struct.Struct("!IIB")
_FRAME = struct.Struct("!cI")


class NotStarted(Exception):
    """The container takes no commands in this way: it has ended, or was started anew."""


class NotOver(Exception):
    """The command runs on; `output` is what it said up to now."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


@dataclass
class ContainerShell:
    """The program, started by `start`; runs one command at a time."""

    start: tuple[str, ...]
    environment: dict[str, str]
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        """Start the program."""
        self._process = subprocess.Popen(
            [*self.start, "perl", "-e", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
        )

    def run(self, command: tuple[str, ...], stdin: str, timeout_s: float) -> tuple[int, str, str]:
        """The status, output and errors of `command`; without `stdin` it reads /dev/null.

        Raises NotStarted when it has not run, and NotOver when it runs still.
        """
        words = b"\0".join(os.fsencode(word) for word in command)
        given = stdin.encode()
        try:
            self._to.write(_REQUEST.pack(len(words), len(given), bool(stdin)) + words + given)
            self._to.flush()
        except OSError as error:
            raise NotStarted from error
        deadline = time.monotonic() + timeout_s
        streams = {b"o": bytearray(), b"e": bytearray()}
        arrived = False
        while True:
            try:
                kind, length = _FRAME.unpack(self._take(_FRAME.size, deadline))
                content = self._take(length, deadline)
            except TimeoutError as error:
                raise NotOver(_text(streams[b"o"] + streams[b"e"], "replace")) from error
            except EOFError as error:
                if not arrived:
                    raise NotStarted from error
                # The container has ended, and with it the command: as podman says it.
                return 137, _text(streams[b"o"]), _text(streams[b"e"])
            if kind == b"x":
                return int.from_bytes(content, "big"), _text(streams[b"o"]), _text(streams[b"e"])
            if kind == b"a":
                arrived = True
            else:
                streams[kind] += content

    def close(self) -> None:
        """End it; a command that runs still runs on."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._to, self._from):
            with suppress(OSError):  # what could not be written is tried once more
                pipe.close()

    @property
    def _to(self) -> IO[bytes]:
        assert self._process.stdin
        return self._process.stdin

    @property
    def _from(self) -> IO[bytes]:
        assert self._process.stdout
        return self._process.stdout

    def _take(self, length: int, deadline: float) -> bytes:
        """So many bytes of the answer."""
        found = b""
        descriptor = self._from.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while len(found) < length:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                part = os.read(descriptor, length - len(found))
                if not part:
                    raise EOFError
                found += part
        return found


@dataclass
class ContainerShells:
    """Those of a cluster's containers: of each as many as commands ran at once."""

    environment: dict[str, str]
    _free: dict[str, list[ContainerShell]] = field(default_factory=dict)

    def run(
        self, container: str, command: tuple[str, ...], stdin: str, timeout_s: float
    ) -> tuple[int, str, str]:
        """As ContainerShell.run; by podman alone where the container takes no commands in another way.

        Raises NotOver when the command runs still.
        """
        free = self._free.setdefault(container, [])
        fresh = False
        while not fresh:
            try:
                shell = free.pop()  # which another thread of the test cannot take as well
            except IndexError:
                fresh = True
                shell = ContainerShell(("podman", "exec", "-i", container), self.environment)
            try:
                answer = shell.run(command, stdin, timeout_s)
            except NotStarted:
                shell.close()
            except BaseException:
                shell.close()
                raise
            else:
                free.append(shell)
                return answer
        return run_by_podman(container, command, stdin, timeout_s, self.environment)

    def close(self) -> None:
        """End them all."""
        for shell in (shell for free in self._free.values() for shell in free):
            shell.close()
        self._free.clear()


def run_by_podman(
    container: str,
    command: tuple[str, ...],
    stdin: str,
    timeout_s: float,
    environment: dict[str, str],
    *,
    tty: bool = False,
) -> tuple[int, str, str]:
    """The same by a `podman exec` of its own, with a terminal if wanted."""
    flags = ["-t"] if tty else ["-i"] if stdin else []
    try:
        done = subprocess.run(
            ["podman", "exec", *flags, container, *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        texts = (text for text in (error.stdout, error.stderr) if isinstance(text, bytes))
        raise NotOver(b"".join(texts).decode(errors="replace")) from error
    return done.returncode, done.stdout, done.stderr


def _text(content: bytes | bytearray, errors: str = "strict") -> str:
    """As subprocess makes text of a command's output."""
    return content.decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")
