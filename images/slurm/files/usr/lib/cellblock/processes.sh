# SPDX-License-Identifier: Apache-2.0
# Finds processes, and waits for none. Who reads the stat, the command line or the program of a user's process may wait as long as
# that runs: it executes something, or maps it, of a file system that the user serves. Its status takes no lock.
# shellcheck shell=sh

# statuses ARGUMENTS... - grep with these in the status of each process. There may be more of them than a command line has room for.
statuses() { printf '%s\0' /proc/[0-9]*/status | xargs -0 grep -s -a -E "$@"; }

# pids_of NAME - processes of that name. Not those in PID namespaces below this one, as jobs and sessions are from level user on: what is in
# one of them may have any name.
pids_of() {
    statuses -H "^(Name:[[:space:]]$1|NSpid:.*)\$" |
        awk -F '[:/\t]' '$5 == "Name" { named = $3 } $5 == "NSpid" && $3 == named && NF == 7 { print $3 }'
}

# all_named PATTERN - processes with a name that PATTERN (a regular expression) matches whole, users' and in whatever namespace.
all_named() { statuses -l "^Name:[[:space:]]($1)\$" | cut -d / -f 3; }

# session_leaders - the processes that lead a session (setsid(2)), in whatever namespace.
session_leaders() {
    statuses -H "^(Pid|NSsid):" |
        awk -F '[:/\t]' '$5 == "Pid" { pid = $7 } $5 == "NSsid" && $3 == pid && $7 == pid { print pid }'
}
