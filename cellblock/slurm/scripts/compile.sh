#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles the Slurm that configure.sh configured and installs it into /build/stage.
set -eu

cd /build/slurm
stage=/build/stage
run() {
  make --silent --jobs="$(nproc)" LIBTOOLFLAGS=--silent "$@"
}
# Neither its tests nor its documentation, which takes Python to make.
run -C src
run -C src install DESTDIR=$stage
run install-pkgincludeHEADERS DESTDIR=$stage
# No part of `make` at all, and images of workers have it.
run -C contribs/pam_slurm_adopt install DESTDIR=$stage

# One file completes all commands: a name for each.
completion=contribs/slurm_completion_help/slurm_completion.sh
if [ -f "$completion" ]; then
  folder=$stage/usr/share/bash-completion/completions
  mkdir -p "$folder"
  cp "$completion" "$folder/sinfo"
  for command in sacct sacctmgr salloc sattach sbatch sbcast scancel scontrol scrontab sdiag sprio squeue \
    sreport srun sshare sstat strigger; do
    [ ! -e "$stage/usr/bin/$command" ] || ln -s sinfo "$folder/$command"
  done
fi
