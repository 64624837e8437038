# SPDX-License-Identifier: Apache-2.0
# Completion of enroot for bash; to be installed as /usr/share/bash-completion/completions/enroot.

# Not by compgen -W, which runs the $(commands) in its words: a name may be anything, and come from an image's file.
_enroot_names() {
    local name
    while IFS= read -r name; do
        [[ $name == "$1"* ]] && COMPREPLY+=("$name")
    done < <(enroot list 2>/dev/null)
}

_enroot_files() {
    local file
    compopt -o filenames
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$1")
    while read -r file; do
        COMPREPLY+=("$file")
    done < <(compgen -f -X '!*.sqsh' -- "$1")
}

_enroot() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} options=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "batch bundle cache create digest exec export help import info list load remove start version" -- "$current")
        return
    fi
    case $previous in
    -c | --conf | --rc | -o | --output)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    -t | --target)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -d -- "$current")
        return
        ;;
    -e | --env)
        mapfile -t COMPREPLY < <(compgen -e -- "$current")
        return
        ;;
    -a | --arch | -d | --desc | -m | --mount | -n | --name)
        return
        ;;
    esac
    case $command in
    bundle) options="--all --checksum --desc --force --help --output --target" ;;
    cache) options="--all --all-users --arch --force --help --json --older --repair --to-size" ;;
    create) options="--force --help --name" ;;
    digest) options="--arch --help" ;;
    exec) options="--env --help" ;;
    export) options="--force --help --output" ;;
    import) options="--arch --help --output" ;;
    list) options="--fancy --help" ;;
    load) options="--arch --force --help --name" ;;
    remove) options="--force --help" ;;
    batch | start) options="--conf --env --help --ipc --mount --net --pid --rc --root --rw --uts" ;;
    esac
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
        return
    fi
    case $command in
    cache)
        if ((COMP_CWORD == 2)); then
            mapfile -t COMPREPLY < <(compgen -W "get init ls prune verify" -- "$current")
        fi
        ;;
    digest)
        compopt -o nospace
        mapfile -t COMPREPLY < <(compgen -W "docker://" -- "$current")
        ;;
    import | load)
        compopt -o nospace
        mapfile -t COMPREPLY < <(compgen -W "docker:// dockerd:// podman:// oci: oci-archive: docker-archive:" -- "$current")
        ;;
    export | remove)
        _enroot_names "$current"
        # In `start`, where there are files as well, readline quotes them.
        ((${#COMPREPLY[@]} != 1)) || printf -v 'COMPREPLY[0]' %q "${COMPREPLY[0]}"
        ;;
    start)
        _enroot_names "$current"
        _enroot_files "$current"
        ;;
    bundle | create) _enroot_files "$current" ;;
    batch)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        ;;
    esac
}

complete -F _enroot enroot
