# SPDX-License-Identifier: Apache-2.0
# Shell functions: Slurm's configuration as a folder that is taken whole. The controller's configuration.sh and follow-configuration
# use them.
# shellcheck shell=sh

# Where slurmctld and its commands read it. ..taken is a link to the folder in use, and each file a link into ..taken: one
# rename changes all of them, as kubelet does it.
ETC=/etc/slurm

# digest FOLDER - of its files' names and texts, and of the release that reads them.
digest() {
    for file in "$1"/*; do
        [ ! -f "$file" ] || { echo "${file##*/}" && cat "$file"; }
    done 2>/dev/null | cat - /usr/lib/cellblock/slurm-release | sha256sum | cut -c 1-32
}

# copy FROM TO - a copy of FROM's files, all of one moment. kubelet may exchange them meanwhile.
copy() {
    tries=0
    while :; do
        rm -rf "$2" && mkdir -m 0755 "$2"
        for file in "$1"/*; do
            [ ! -f "$file" ] || install -m 0444 "$file" "$2/" || true
        done 2>/dev/null
        [ "$(digest "$1")" != "$(digest "$2")" ] || return 0
        tries=$((tries + 1))
        [ $tries -lt 20 ] || return 1
    done
}

# take FOLDER - have Slurm's programs read FOLDER's files from now on. The folder before stays, for the way back.
take() {
    name=..$(digest "$1")
    [ "$1" = "$ETC/$name" ] || copy "$1" "$ETC/$name" || return 1
    before=$(readlink $ETC/..taken) || before=
    for file in "$ETC/$name"/*; do
        file=${file##*/}
        # A link into nothing until the next line.
        [ -L "$ETC/$file" ] || ln -sfn "..taken/$file" "$ETC/$file"
    done
    { ln -sfn "$name" $ETC/..taken.new && mv -T $ETC/..taken.new $ETC/..taken; } || return 1
    for file in "$ETC"/*; do
        [ -e "$file" ] || rm -f "$file"
    done
    for folder in "$ETC"/..????????????????????????????????; do
        case ${folder##*/} in "$name" | "$before") ;; *) rm -rf "$folder" ;; esac
    done
}

# look - $at is the folder that kubelet's link in $from leads to, and nothing where no kubelet made the files. It exchanges the link for
# each change, so nothing is executed to see that there is none.
# shellcheck disable=SC2034,SC2154 # of who uses it
look() {
    at=
    if cd -P "$from/..data" 2>/dev/null; then
        at=$PWD
        cd /
    fi
}
