#!/usr/bin/env bash
# A health check for Slurm: slurm.conf gets
#
#   HealthCheckProgram=/path/to/jobs/health.sh
#   HealthCheckInterval=3600
#   HealthCheckNodeState=IDLE      # no job shares its node with a measurement
#
# It runs `dynmo bench node --quick`, which ends within 50 s. With a job on the node that command
# only reads the reports of GPUs and links. A child process drains a slow or faulty node (status 1
# alone), with the reason, after the script has ended: Slurm may need an answer of the node's slurmd
# for that. A node that was not measured (status 3) or could not be judged (status 4: others used it,
# or no bound of the reference fits) stays as it is; what stood in the way goes to slurmd's log.
# The status is always 0, because some versions of slurmd repeat the check until its status is 0
# before they register. The script never resumes a node: people do, once they have looked.
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
1) reason=$(grep -m 1 '^dynmo: ' <<<"$answer") ;;
*)
	echo "dynmo health: status $status: $answer" >&2 # 124, 137: it did not end. The node may be well
	exit 0
	;;
esac
node=${SLURMD_NODENAME:-$(hostname -s)}
# shellcheck disable=SC2016 # expanded by the shell inside
setsid sh -c 'sleep 1; exec scontrol update NodeName="$1" State=DRAIN Reason="$2"' sh "$node" "${reason:0:200}" </dev/null >/dev/null 2>&1 &
exit 0
