# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of Cellblock's commands in bash: for `python3 build.py` and for `./build.py`.

_cellblock_completion() {
    local at=0 program
    case ${COMP_WORDS[0]##*/} in python | python3*) at=1 ;; esac
    program=${COMP_WORDS[at]/#\~\//$HOME/}
    # Of another project's build.py nothing is known, and it is not to be run for that.
    if [[ ${program##*/} != build.py || $COMP_CWORD -le $at || ! -f ${program%build.py}cellblock/launcher/main.py ]]; then
        _cellblock_others "$@"
        return
    fi
    [[ $program == */* || $at -eq 1 ]] || program=$(type -P "$program")
    local IFS=$'\n'
    # shellcheck disable=SC2207 # a line is a word: IFS
    COMPREPLY=($(env COMP_WORDS="${COMP_WORDS[*]:at}" COMP_CWORD=$((COMP_CWORD - at)) \
        "_BUILD.PY_COMPLETE=complete_bash" "${COMP_WORDS[@]:0:at}" "$program" 2>/dev/null))
}

# What completes another program of Python: what bash-completion has for python, if it is there, or files.
_cellblock_others() {
    local specification
    COMPREPLY=()
    complete -r "$1" 2>/dev/null
    if declare -F _comp_load >/dev/null; then
        _comp_load "$1" &>/dev/null
    elif declare -F _completion_loader >/dev/null; then
        _completion_loader "$1" &>/dev/null
    fi
    specification=$(complete -p "$1" 2>/dev/null)
    complete -o default -F _cellblock_completion "$1"
    if [[ $specification =~ -F\ ([^ ]+) && ${BASH_REMATCH[1]} != _cellblock_completion && ${BASH_REMATCH[1]} != *_minimal ]]; then
        "${BASH_REMATCH[1]}" "$@"
    fi
}

complete -o default -F _cellblock_completion python3 python build.py
