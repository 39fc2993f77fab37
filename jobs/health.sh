#!/usr/bin/env bash
# A health check for Slurm: slurm.conf gets
#
#   HealthCheckProgram=/path/to/jobs/health.sh
#   HealthCheckInterval=3600
#   HealthCheckNodeState=IDLE      # no job shares its node with a measurement
#
# It runs `dynmo bench node --quick`, which ends by itself within 50 s and, with a job on the
# node, looks only at what GPUs and links report. A node that is slow or faulty is drained, with
# the reason, by a child that goes on by itself: some versions of slurmd repeat the check until
# its status is 0 before they register, and Slurm may need the node for an answer. The status is
# always 0. The script never resumes a node: people do, once they have looked.
#
#   DYNMO            the program; default: bin/dynmo beside the folder of this file
#   DYNMO_REFERENCE  the file of dynmo bench node --write-reference: without one a node is only
#                    drained for faults and wrong results
#   DYNMO_QUICK      more flags
#
# slurmd passes no variables on, so /etc/dynmo/health.env (or $DYNMO_HEALTH_ENV) is read first.
env=${DYNMO_HEALTH_ENV:-/etc/dynmo/health.env}
# shellcheck source=/dev/null # the site's
[ ! -r "$env" ] || . "$env"
dynmo=${DYNMO:-$(cd "$(dirname "$0")/.." && pwd)/bin/dynmo}
flags=(--quick)
[ -z "${DYNMO_REFERENCE:-}" ] || flags+=(--reference "$DYNMO_REFERENCE")
read -ra more <<<"${DYNMO_QUICK:-}"

answer=$(timeout -k 2 52 "$dynmo" bench node "${flags[@]}" ${more[@]+"${more[@]}"} 2>&1)
status=$?
case $status in
0) exit 0 ;;
1) reason=$(head -n 1 <<<"$answer") ;;
124 | 137) reason='dynmo: the health check did not end within 52 s' ;;
*)
	echo "dynmo health: status $status: $answer" >&2 # the check itself is wrong, the node may be well
	exit 0
	;;
esac
node=${SLURMD_NODENAME:-$(hostname -s)}
# shellcheck disable=SC2016 # expanded by the shell inside
setsid sh -c 'sleep 1; exec scontrol update NodeName="$1" State=DRAIN Reason="$2"' sh "$node" "${reason:0:200}" </dev/null >/dev/null 2>&1 &
exit 0
