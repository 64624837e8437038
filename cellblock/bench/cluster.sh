#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What cluster.py runs in the cluster's containers; prints seconds.
#   submit CLIENTS JOBS    CLIENTS at once submit JOBS each, in the jail
#   plain CLIENTS JOBS     the same to a slurmctld with nothing of ours in its configuration, on the controller
#   steps KIND COUNT       an allocation on the first worker with COUNT steps
set -eu

submit() {
	for _ in $(seq "$1"); do
		(for _ in $(seq "$2"); do sbatch --quiet --hold --output=/dev/null --wrap=true >/dev/null; done) &
	done
	wait
}

timed() {
	local began=$EPOCHREALTIME
	"$@"
	echo "$(( ${EPOCHREALTIME/./} - ${began/./} ))e-6"
}

plain() {
	local folder
	folder=$(mktemp -d /tmp/plain.XXXXXX)
	cat >"$folder/slurm.conf" <<-END
		ClusterName=plain
		SlurmctldHost=$(hostname)(127.0.0.1)
		SlurmUser=root
		SlurmctldPort=16817
		SlurmdPort=16818
		AuthType=auth/munge
		StateSaveLocation=$folder/state
		SlurmctldPidFile=$folder/pid
		ProctrackType=proctrack/linuxproc
		NodeName=plain1 NodeAddr=127.0.0.1 CPUs=1
		PartitionName=main Nodes=ALL Default=YES
	END
	mkdir "$folder/state"
	slurmctld -D -f "$folder/slurm.conf" >"$folder/log" 2>&1 &
	local slurmctld=$!
	export SLURM_CONF=$folder/slurm.conf
	until scontrol ping >/dev/null 2>&1; do
		kill -0 "$slurmctld" || { cat "$folder/log" >&2; exit 1; }
		sleep 0.1
	done
	(cd /tmp && timed submit "$@")
	kill "$slurmctld"
	wait "$slurmctld" || true
	rm -rf "$folder"
}

steps() {
	local kind=$1 count=$2 loop
	case $kind in
	static) loop="srun --mpi=none /static" ;;
	true) loop="srun --mpi=none /bin/true" ;;
	bash) loop="srun --mpi=none /bin/bash -c true" ;;
	inside) loop="srun --mpi=none /bin/true" ;;
	esac
	set -- salloc --quiet --nodelist=worker-1 -n1 bash -c "for n in \$(seq $count); do $loop; done"
	if [ "$kind" = inside ]; then
		set -- jail-enter --user cellblock-bench -- "$@"
	fi
	cd /tmp
	"$@"
}

case $1 in
plain) shift; plain "$@" ;;
submit) shift; timed submit "$@" ;;
steps) shift; steps "$@" ;;
esac
