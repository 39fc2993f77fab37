#!/bin/sh
# A stand-in for scontrol and squeue, whose name it is called by. FAKE says how it behaves,
# FAKE_DIR holds the job's nodes and a line for each call of `scontrol update`.
program=${0##*/}
case "$program $1 $2" in
"scontrol show config")
	echo "Configuration data as of 2026-01-01T00:00:00"
	case $FAKE in
	disabled) echo "SchedulerParameters     = bf_interval=5,disable_job_shrink" ;;
	*) echo "SchedulerParameters     = bf_interval=5" ;;
	esac
	;;
"scontrol show job") printf 'JobId=%s JobName=x BatchHost=evil\n   Command=x\n   BatchHost=%s\n' "$3" "${FAKE_BATCH-a}" ;;
"scontrol show hostnames") tr , '\n' <"$FAKE_DIR/nodes" ;;
"scontrol update "*)
	echo "$PWD $*" >>"$FAKE_DIR/calls"
	touch slurm_job_resize.sh
	calls=$(wc -l <"$FAKE_DIR/calls")
	case $FAKE in
	hangs) sleep 100 & wait ;;
	permission) echo "Access/permission denied for job $2" >&2 && exit 1 ;;
	*busy)
		if [ "$FAKE" = busy ] || [ "$calls" -lt 4 ]; then
			echo "slurm_update error: Job update not available right now, the DB index is being set, try again in a bit for job 7" >&2
			exit 1
		fi
		;;
	lies) exit 0 ;;
	esac
	echo "${3#NodeList=}" >"$FAKE_DIR/nodes"
	[ "$FAKE" != late ] || exit 1
	;;
"squeue "*) cat "$FAKE_DIR/nodes" ;;
*) echo "$program: $*?" >&2 && exit 2 ;;
esac
