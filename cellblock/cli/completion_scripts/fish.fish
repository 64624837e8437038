# Completion of Cellblock's commands in fish: for `python3 build.py` and for `./build.py`.

function __cellblock_command --description 'The words that run build.py; nothing for another program'
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l at 1
    string match --quiet --regex '^(.*/)?python3?[0-9.]*$' -- $words[1]; and set at 2
    set -q words[$at]; or return 1
    set -l program (string replace --regex '^~/' "$HOME/" -- $words[$at])
    string match --quiet --regex '^(.*/)?build\.py$' -- $program; or return 1
    # Of another project's build.py nothing is known, and it is not to be run for that.
    test -f (dirname $program)/cellblock/launcher/main.py; or return 1
    test $at -eq 2; and echo $words[1]
    echo $program
end

function __cellblock_ask --description 'What typer answers to get-args or is-args'
    set -l command (__cellblock_command); or return 1
    set -l line (commandline --cut-at-cursor --current-process)
    test (count $command) -eq 2; and set line (string replace --regex '^\s*\S+\s+' '' -- $line)
    env _BUILD.PY_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] _TYPER_COMPLETE_ARGS="$line" $command 2>/dev/null
end

for program in python3 python build.py
    complete --command $program --no-files --arguments '(__cellblock_ask get-args)' --condition '__cellblock_ask is-args'
end
