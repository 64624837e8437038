# SPDX-License-Identifier: Apache-2.0
# Shell functions of watch-configuration: Slurm's configuration as a folder that is taken whole, and tried before.
# Runs as Slurm's user. docs/decisions/kubernetes-pods.md says why it is done so.
# shellcheck shell=sh

# shellcheck source=images/slurm/files/usr/lib/cellblock/taken-folder.sh
. /usr/lib/cellblock/taken-folder.sh

STATE=/var/lib/slurm/slurmctld
# The last configuration that slurmctld has answered with. Two controllers share the state.
GOOD=$STATE/configuration.$(hostname)
# Why the newest configuration is not in use, while it is not.
# shellcheck disable=SC2034 # watch-configuration uses it
REFUSED=/run/slurmctld/configuration-refused
# Seconds until slurmctld runs or has ended; one is usual.
TRIAL_S=60
# Seconds that a slurmctld which has read its files, and whom nobody can ask, must have lived since.
LIVES_S=5

say() { echo "watch-configuration: $*" >&2; }

# keep - the configuration in use is a good one: the next start falls back to it. The digest says that the copy is whole.
keep() {
    rm -f "$GOOD.attempts"
    for kind in partitions nodes; do names $kind >"$GOOD.$kind"; done
    [ "$(kept)" != "$(digest $ETC)" ] || return 0
    copy $ETC "$GOOD" && digest "$GOOD" >"$GOOD.digest.new" && mv "$GOOD.digest.new" "$GOOD.digest"
}

# kept - the digest of the good configuration, if there is one for this release.
kept() {
    [ -s "$GOOD.digest" ] || return 0
    digest=$(digest "$GOOD")
    [ "$digest" != "$(cat "$GOOD.digest")" ] || echo "$digest"
}

# answers - whether slurmctld does: the one that runs, or that of SLURM_CONF.
answers() { timeout 20 scontrol ping 2>/dev/null | grep -q ' is UP'; }

# names KIND - of the partitions, or of the nodes that slurm.conf names: one a line. Nodes that registered themselves are in
# no file.
names() {
    case $1 in
    partitions) timeout 20 scontrol --oneliner show partition 2>/dev/null | sed -n 's/^PartitionName=\([^ ]*\).*/\1/p' ;;
    nodes)
        timeout 20 scontrol --oneliner show node 2>/dev/null | sed -n -e '/State=[^ ]*DYNAMIC/d' \
            -e 's/^NodeName=\([^ ]*\).*/\1/p'
        ;;
    esac | sort
}

# free_port - one on which nothing listens here.
free_port() {
    port=16817
    while timeout 2 bash -c ": < /dev/tcp/127.0.0.1/$port" 2>/dev/null; do port=$((port + 1)); done
    echo $port
}

# Keys of slurm.conf that a trial has its own values of, or none: state, port, database, and programs of the site's.
OWN="AccountingStorage[a-z]*|SlurmctldHost|ControlMachine|ControlAddr|SlurmctldPort|SlurmctldPrimaryO[nf]+Prog"
OWN="$OWN|SlurmctldLogFile|SlurmctldPidFile|StateSaveLocation|SuspendProgram|Resume(Fail)?Program|RebootProgram"
# Keys that name plugins which slurmd loads, and slurmctld does not.
OF_SLURMD="TaskPlugin|ProctrackType|JobAcctGatherType|AcctGather[a-z]+Type|PrEpPlugins|JobContainerType|SwitchType"
SPACE='[[:space:]]*'

# write_trial FOLDER - make FOLDER's configuration that of a slurmctld which touches nothing of the running one's.
# job_submit/jail looks at who acts as the controller.
write_trial() {
    submits="^($SPACE)JobSubmitPlugins$SPACE=$SPACE"
    sed -i -E -e "/^$SPACE($OWN)$SPACE=/Id" \
        -e "/${submits}jail$SPACE\$/Id" -e "/$submits/I{s/,jail\b//I;s/\bjail,//I}" "$1/slurm.conf"
    cat >>"$1/slurm.conf" <<END

SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmctldPidFile=$1/state/slurmctld.pid
StateSaveLocation=$1/state
END
    # The socket of auth/slurm is the running slurmctld's.
    ! grep -qi '^AuthType=auth/slurm' "$1/slurm.conf" || echo AuthInfo=disable_sack >>"$1/slurm.conf"
    mkdir -m 0700 "$1/state"
}

# faults LOG - what slurmctld says is wrong, but what it says of each that has no state yet.
faults() {
    found=$(sed -n -E 's/.*(fatal|error): (.+)$/\2/p' "$1" |
        grep -v -E 'state (save )?file|PrologFlags=Contain|may be lost|cluster_id' | tail -n 10)
    [ -n "$found" ] || found=$(tail -n 10 "$1")
    echo "${found:-slurmctld said nothing}"
}

# missing_plugins FOLDER - say which plugins of slurmd's FOLDER's files name that there are not: each slurmd would end. Asks the
# slurmctld of SLURM_CONF where plugins are.
missing_plugins() {
    plugins=$(timeout 20 scontrol show config 2>/dev/null | sed -n 's/^PluginDir *= *//p')
    [ -d "${plugins:-/nowhere}" ] || return 0
    sed -n -E "s/^$SPACE($OF_SLURMD)$SPACE=$SPACE([^#[:space:]]*).*/\\2/Ip" "$1/slurm.conf" | tr , '\n' |
        while read -r plugin; do
            case $plugin in
            */none) ;;
            */*) [ -e "$plugins/${plugin%/*}_${plugin#*/}.so" ] || echo "there is no plugin $plugin" ;;
            esac
        done
}

# try FOLDER - whether a slurmctld of its own takes FOLDER's files. FOLDER.faults has what is wrong, FOLDER.partitions
# and FOLDER.nodes what it knows. 2: it did not come to a verdict.
try() {
    trial=$1.trial
    rm -rf "$trial" "$1.faults" "$1.partitions" "$1.nodes"
    if [ ! -s "$1/slurm.conf" ]; then
        echo "there is no slurm.conf in it" >"$1.faults"
        return 1
    fi
    cp -R "$1" "$trial" && chmod -R u+w "$trial" && write_trial "$trial"
    SLURM_CONF=$trial/slurm.conf slurmctld -D -f "$trial/slurm.conf" >"$trial.log" 2>&1 &
    tried=$!
    deadline=$(($(date +%s) + TRIAL_S)) read_at=
    verdict=2
    while [ "$(date +%s)" -lt $deadline ]; do
        if ! kill -0 $tried 2>/dev/null; then
            wait $tried && status=0 || status=$?
            # Somebody ended it.
            [ "$status" -ge 128 ] && [ "$status" -ne 134 ] && [ "$status" -ne 139 ] || verdict=1
            break
        fi
        if grep -q 'Running as primary controller' "$trial.log"; then
            read_at=${read_at:-$(date +%s)}
            if (SLURM_CONF=$trial/slurm.conf && export SLURM_CONF && answers &&
                names partitions >"$1.partitions" && names nodes >"$1.nodes" && missing_plugins "$1" >"$1.faults"); then
                verdict=0
                [ ! -s "$1.faults" ] || verdict=3
                break
            fi
            # With auth/slurm the running slurmctld says who asks, and it may not run.
            if [ $(($(date +%s) - read_at)) -ge $LIVES_S ]; then
                rm -f "$1.partitions" "$1.nodes"
                verdict=0
                break
            fi
        fi
        sleep 0.2
    done
    kill -TERM $tried 2>/dev/null || true
    (sleep 5 && kill -KILL $tried 2>/dev/null) &
    killer=$!
    wait $tried 2>/dev/null || true
    kill $killer 2>/dev/null || true
    case $verdict in
    1) faults "$trial.log" >"$1.faults" ;;
    2) echo "slurmctld neither ran with it within $TRIAL_S s nor ended: $(tail -n 1 "$trial.log")" >"$1.faults" ;;
    esac
    rm -rf "$trial" "$trial.log"
    [ $verdict -ne 3 ] || verdict=1
    return $verdict
}

# attempts DIGEST - how often slurmctld was to go on with a configuration, and did not answer since.
attempts() { grep -s -c -x -e "$1" "$GOOD.attempts" || true; }

# gone FOLDER KIND [kept] - what the configuration in use (kept: the last good one) names, and FOLDER's, which was tried, does
# not: NAME,NAME.
gone() {
    [ -s "$1.$2" ] || return 0
    [ -n "${3:-}" ] || names "$2" >"$1.now"
    # slurmctld does not run.
    { [ -z "${3:-}" ] && [ -s "$1.now" ]; } || cp "$GOOD.$2" "$1.now" 2>/dev/null || return 0
    comm -23 "$1.now" "$1.$2" | paste -s -d , -
}

# in_use FOLDER - say which jobs name a partition or a node that FOLDER's files do not have any more. slurmctld would end
# those jobs.
in_use() {
    for kind in partitions nodes; do
        gone=$(gone "$1" $kind)
        [ -n "$gone" ] || continue
        case $kind in partitions) option=--partition ;; nodes) option=--nodelist ;; esac
        if jobs=$(timeout 20 squeue --noheader --all "$option=$gone" --format=%A 2>/dev/null); then
            jobs=$(echo "$jobs" | sort -u -n | head -n 5 | xargs)
            [ -z "$jobs" ] || echo "it has no more these $kind, which jobs still name: $gone (jobs $jobs)"
        else
            echo "it has no more these $kind, and slurmctld does not say whether jobs name them: $gone"
        fi
    done
}
