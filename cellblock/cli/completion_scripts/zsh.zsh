# Completion of Cellblock's commands in zsh: for `python3 build.py` and for `./build.py`.

_cellblock_completion() {
  local at=1 program
  [[ ${words[1]:t} == (python|python3*) ]] && at=2
  program=${words[at]/#\~\//$HOME/}
  # Of another project's build.py nothing is known, and it is not to be run for that.
  if [[ ${program:t} != build.py || $CURRENT -le $at || ! -f ${program:h}/cellblock/launcher/main.py ]]; then
    if (( at == 2 )) && (( $+functions[_python] )); then _python "$@"; else _files; fi
    return
  fi
  eval $(env _TYPER_COMPLETE_ARGS="${words[at,$CURRENT]}" "_BUILD.PY_COMPLETE=complete_zsh" \
    ${words[1,at-1]} $program 2>/dev/null)
}

(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
compdef _cellblock_completion python3 python build.py
