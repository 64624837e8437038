# SPDX-License-Identifier: Apache-2.0
# What slurmctld says of nodes on demand, and what follows from that. Needs node-requests.sh.
# shellcheck shell=sh

# Reads records of nodes, one a line; writes: NODE STATE SINCE, and the SINCE is of its reason. STATE is `down`, `up`, `serves`;
# `lost` for one that is to be given back; `left` for one that a person has set down, say, which stays as it is.
sort_nodes() {
    awk -v ours="$OURS" '
        {
            node = $1; sub(/^NodeName=/, "", node)
            state = ""; reason = ""; since = 0
            for (i = 2; i <= NF; i++) if ($i ~ /^State=/) { state = $i "+"; sub(/^State=/, "+", state); break }
            gsub(/[*~#!%$@^-]+[+]/, "+", state)
            if (match($0, / Reason=/)) reason = substr($0, RSTART + 8)
            if (match(reason, /@[0-9]+[]]/)) since = substr(reason, RSTART + 1, RLENGTH - 2)
            slurms = reason ~ /^(ResumeTimeout reached|Not responding|Node unexpectedly rebooted)/ || index(reason, ours) == 1
            if (state ~ /[+]DOWN[+]/ && state !~ /[+](POWERING_DOWN|POWER_DOWN)[+]/)
                is = slurms && state !~ /[+]DRAIN[+]/ ? "lost" : "left"
            else if (state ~ /[+](POWERING_UP|POWER_UP)[+]/) is = "up"
            else if (state ~ /[+](POWERED_DOWN|POWERING_DOWN)[+]/) is = state ~ /[+]DRAIN[+]/ ? "left-down" : "down"
            else is = "serves"
            print node, is, since
        }'
}

# What is to be done: reads STATE TOKEN NODE of all requests, `--`, and what sort_nodes writes.
# A request that is newer than the question stays (among `newer`).
compare() {
    awk -v newer="$1" -v staying="$2" '
        BEGIN {
            count = split(newer, names, "\n"); for (i = 1; i <= count; i++) new[names[i]] = 1
            count = split(staying, names, "\n"); for (i = 1; i <= count; i++) stays[names[i]] = 1
        }
        $1 == "--" { listed = 1; next }
        !listed { state[$3] = $1; token[$3] = $2; next }
        { seen[$1] = 1 }
        $2 == "serves" { print "serving", $1 }
        $2 == "lost" { print "lost", $1, $3 }
        $2 == "down" && ($1 in stays) { print "start", $1 }
        $1 in new { next }
        $2 == "serves" && state[$1] != "serves" { print "want", $1, "serves", token[$1]; next }
        $2 == "up" && state[$1] != "up" { print "want", $1, "up"; next }
        $2 ~ /down|lost/ && state[$1] != "down" { print "want", $1, "down" }
        # Slurm 22.05 may not list those that are off; and those that are in slurm.conf no more.
        END { for (node in state) if (!(node in seen) && !(node in new) && state[node] != "down") print "want", node, "down" }'
}
