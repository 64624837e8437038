# SPDX-License-Identifier: Apache-2.0
# Shell functions of role-accounting: what a release of Slurm that is new to the database does to it, and a dump of what
# was there before. Needs waiting.sh, and CONF: the folder of slurmdbd.conf.
# shellcheck shell=sh

# There while slurmdbd may be converting the database: nobody is to end it then (cellblock.cluster.local.stop).
CONVERTING=/run/slurmdbd/converting
# A table of ours, in the database itself: a dump that is loaded again brings the mark of its time back.
MARK=cellblock_release
DUMPS=/var/lib/slurm/archive

# as_slurm COMMAND... - as Slurm's user, without any capability and without a way to get one.
as_slurm() {
    if [ "$(id -u)" = 0 ]; then
        set -- --reuid=slurm --regid=slurm --init-groups --inh-caps=-all --bounding-set=-all "$@"
    fi
    setpriv --no-new-privs "$@"
}

# setting KEY - the value of a key of slurmdbd.conf.
setting() { sed -n "s/^$1=//p" "$CONF/slurmdbd.conf" | tail -n 1; }

# No argument holds the password: others of this machine see those.
write_client_options() {
    (
        umask 077
        printf '[client]\nhost=%s\nport=%s\nuser=%s\npassword="%s"\n' \
            "$(setting StorageHost)" "$(setting StoragePort)" "$(setting StorageUser)" "$(setting StoragePass)" >"$CONF/client.cnf"
        ca=$(setting StorageParameters | sed -n 's/^SSL_CA=//p')
        [ -z "$ca" ] || printf 'ssl-ca=%s\nssl-verify-server-cert\n' "$ca" >>"$CONF/client.cnf"
    )
}

sql() { mariadb --defaults-file="$CONF/client.cnf" --batch --skip-column-names "$(setting StorageLoc)" -e "$1"; }

# let_in - whether the database lets slurmdbd's user in.
let_in() { sql "SELECT 1" >/dev/null 2>"$CONF/client.said"; }

# mark RELEASE - say in the database that RELEASE has been let at it.
mark() {
    sql "CREATE TABLE IF NOT EXISTS $MARK (slurm_release VARCHAR(16) NOT NULL, since DATETIME NOT NULL DEFAULT NOW());
         DELETE FROM $MARK; INSERT INTO $MARK (slurm_release) VALUES ('$1');" || die "the database cannot be written to"
}

# dump RELEASE - write what the database holds to a file below DUMPS before Slurm RELEASE changes it: whole and on disk,
# or not there.
dump() {
    file=$DUMPS/database-before-$1-$(date -u +%Y%m%dT%H%M%S).sql.gz
    part=$DUMPS/.${file##*/}
    rm -f $DUMPS/.database-before-*
    echo "cellblock-init: dumping the database to $file before Slurm $1 changes it" >&2
    if ! write_dump "$part" || ! mv "$part" "$file" || ! sync $DUMPS; then
        rm -f "$part"
        die "the database could not be dumped to $DUMPS before Slurm $1 changes it, so slurmdbd is not started; make room there"
    fi
    echo "cellblock-init: the database of before is in $file; to go back, empty the database and load it: zcat FILE | mariadb" \
        "$(setting StorageLoc); docs/cluster-upgrade.md has all steps" >&2
}

write_dump() {
    # A pipe has the status of its last part alone: what was dumped says at its end that it is whole.
    mariadb-dump --defaults-file="$CONF/client.cnf" --single-transaction --quick --routines --triggers --hex-blob \
        "$(setting StorageLoc)" | gzip -1 >"$1" && gzip -dc "$1" | tail -n 1 | grep -q '^-- Dump completed' &&
        chmod 0600 "$1" && sync "$1"
}

# What slurmdbd -u says: whether it would convert the database. It ends with a message where the database is a newer
# release's, or too old. A database that is not there it awaits for ever.
ask_slurmdbd() {
    answer=$(as_slurm timeout 60 slurmdbd -u 2>&1) || true
    echo "cellblock-init: slurmdbd -u: $answer" >&2
    case $answer in
        *"newer version"* | *"too old"*)
            die "Slurm $(cat "$RELEASE_FILE") does not take this database, and nothing was touched: start images of the Slurm" \
                "that wrote it again; docs/cluster-upgrade.md has the way up and the way back" ;;
    esac
}

# prepare_conversion - refuse a database that this release does not read; dump one that an earlier release wrote.
prepare_conversion() {
    mine=$(cat "$RELEASE_FILE")
    if ! let_in; then
        sed 's/^/cellblock-init: the database: /' "$CONF/client.said" >&2
        wait_for "the database to let $(setting StorageUser) in; the lines above say what it answers" let_in
    fi
    theirs=$(sql "SELECT slurm_release FROM $MARK" 2>/dev/null) || theirs=
    [ -z "$theirs" ] || refuse_release "$theirs" "the database of the accounting"
    ask_slurmdbd
    if [ "$theirs" != "$mine" ]; then
        tables=$(sql "SHOW TABLES") || die "the database of the accounting cannot be read"
        [ -z "$tables" ] || dump "$mine"
        mark "$mine"
        touch $CONVERTING
    fi
    case $answer in *"needs to be at"*) touch $CONVERTING ;; esac
    [ ! -e $CONVERTING ] || converted &
}

# converted - wait, for as long as it takes, until slurmdbd listens: it does so when the database is converted.
converted() {
    until listens "127.0.0.1:$PORT"; do sleep 1; done
    rm -f $CONVERTING
}
