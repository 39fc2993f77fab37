#!/usr/bin/env bash
# A Slurm cluster on this host, to try jobs on: munge, slurmctld, slurmdbd over
# MariaDB, and N slurmd. Each slurmd has a UTS namespace: ranks see N host names. It
# also has a PID namespace: killing a node kills all its processes. All files lie in
# the directory of the cluster, which `down` removes.
set -euo pipefail

usage() {
	cat <<'END_OF_USAGE'
usage: jobs/test-cluster.sh up [N] [--no-accounting] [--health PROGRAM] | down | status | kill NODE | start NODE | env | need [--no-accounting]

  up      start a cluster of N nodes (default 4), node1 to nodeN, with 4 CPUs each
          and 2 GPUs, which Slurm counts and nobody has; jobs of the partition urgent
          have those of the default one requeued;
          --no-accounting leaves slurmdbd and MariaDB out; --health has slurmd run a
          program every 45 s on nodes without a job
  down    end its jobs and daemons and remove its directory
  status  nodes and jobs; status 1 if no cluster is up
  kill    end a node at once with all its processes, as a crash does
  start   start it again
  env     print how a shell reaches it: eval "$(jobs/test-cluster.sh env)"; sbatch ...
  need    print which programs are missing (of slurmdbd's not with --no-accounting), and
          whether the system allows no namespaces; status 1 if any

DYNMO_CLUSTER names its directory (default dynmo-cluster-UID in TMPDIR or /tmp).
END_OF_USAGE
}

cluster=${DYNMO_CLUSTER:-${TMPDIR:-/tmp}/dynmo-cluster-$(id -u)}
export SLURM_CONF=$cluster/slurm.conf
PATH=$PATH:/usr/sbin:/sbin
user=$(id -un)

# The namespaces of a node. An ordinary user becomes root in a user namespace, which
# allows the others.
namespaces=(unshare --uts --pid --fork --mount-proc --kill-child)
user_namespace=() own_id=() # of an ordinary user: to become root, and the user again
if [ "$(id -u)" != 0 ]; then
	user_namespace=(--user --map-root-user)
	own_id=(unshare --user --map-user="$(id -u)" --map-group="$(id -g)")
fi
namespaces+=("${user_namespace[@]}")

say() { printf 'test-cluster: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

need() {
	local program missing=()
	for program in munged slurmctld slurmd srun unshare; do
		command -v "$program" >/dev/null || missing+=("$program")
	done
	if [ -n "$accounting" ]; then
		for program in slurmdbd mariadbd mariadb-install-db; do
			command -v "$program" >/dev/null || missing+=("$program")
		done
	fi
	[ ${#missing[@]} != 0 ] || "${namespaces[@]}" true 2>/dev/null || missing=('namespaces (unshare)')
	[ ${#missing[@]} = 0 ] || { echo "${missing[*]}"; return 1; }
}

# until_true SECONDS DAEMON COMMAND...: waits for a command to succeed, while the daemon runs.
until_true() {
	local end=$((SECONDS + $1)) daemon=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		if ! kill -0 "$(cat "$cluster/pids/$daemon")" 2>/dev/null; then
			tail -n 5 "$cluster/log/$daemon" "$cluster/log/$daemon.out" >&2 2>/dev/null || true
			fail "$daemon has ended"
		fi
		if [ "$SECONDS" -ge "$end" ]; then
			tail -n 5 "$cluster/log/$daemon" >&2 2>/dev/null || true
			fail "$daemon: not ready within time"
		fi
		sleep 0.2
	done
}

# free_ports COUNT: prints the first of COUNT ports in a row on which nothing listens. They
# lie below the ports that the system gives to connections.
free_ports() {
	local first port try
	for try in {1..50}; do
		first=$((20000 + (RANDOM % 120) * 100))
		for ((port = first; port < first + $1; port++)); do
			if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then continue 2; fi
		done
		echo "$first"
		return
	done
	fail "no $1 free ports after $try tries"
}

# A launch of ranks has cred_expire seconds to reach its nodes, also on a busy host. A
# requeued job waits for the same time before it starts again.
write_slurm_conf() {
	local nodes=$1 port=$2 host
	host=$(hostname)
	cat >"$SLURM_CONF" <<CONF
ClusterName=dynmo
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$cluster/munge/socket,cred_expire=30
StateSaveLocation=$cluster/state
SlurmctldPidFile=$cluster/slurmctld.pid
SlurmctldLogFile=$cluster/log/slurmctld
SlurmdPidFile=$cluster/%n/slurmd.pid
SlurmdLogFile=$cluster/log/%n
SlurmdSpoolDir=$cluster/%n
TmpFS=$cluster/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=5
SlurmdTimeout=20
MessageTimeout=60
SchedulerParameters=bf_interval=5,sched_interval=5
MailProg=/bin/true
GresTypes=gpu
${health:+HealthCheckProgram=$health
HealthCheckInterval=45
HealthCheckNodeState=IDLE}
NodeName=node[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 2))-$((port + 1 + nodes))] CPUs=4 RealMemory=16000 Gres=gpu:2 State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
CONF
	ln -s /dev/null "$cluster/gpu0" # Slurm from 24.11 on wants devices
	ln -s /dev/zero "$cluster/gpu1"
	echo "Name=gpu File=$cluster/gpu[0-1]" >"$cluster/gres.conf"
	[ -n "$accounting" ] || return 0
	cat >>"$SLURM_CONF" <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 1))
AccountingStoragePass=$cluster/munge/socket
CONF
	(umask 077 && cat >"$cluster/slurmdbd.conf") <<CONF
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 1))
SlurmUser=$user
AuthType=auth/munge
AuthInfo=socket=$cluster/munge/socket
PidFile=$cluster/slurmdbd.pid
LogFile=$cluster/log/slurmdbd
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=$user
StorageLoc=slurm
CONF
}

# write_hosts writes the /etc/hosts of the daemons. From 24.11 on slurmctld waits 10 s in each
# scancel for a node whose name does not resolve.
write_hosts() {
	local i
	cat /etc/hosts 2>/dev/null || true
	for ((i = 1; i <= $1; i++)); do echo "127.0.0.1 node$i"; done
}

# with_hosts COMMAND...: runs a command that sees the cluster's /etc/hosts.
with_hosts() {
	# shellcheck disable=SC2016 # expanded by the shell inside
	exec unshare --mount "${user_namespace[@]}" bash -c 'mount --bind "$1" /etc/hosts; exec "${@:2}"' sh "$cluster/hosts" "${own_id[@]}" "$@"
}

# keep NAME COMMAND...: runs a daemon in the background and keeps its process id.
keep() {
	local name=$1
	shift
	setsid "$@" </dev/null >>"$cluster/log/$name.out" 2>&1 &
	echo $! >"$cluster/pids/$name"
	disown
}

start_munge() {
	(umask 077 && head -c 1024 /dev/urandom >"$cluster/munge/key")
	keep munged munged --foreground --socket="$cluster/munge/socket" --key-file="$cluster/munge/key" \
		--pid-file="$cluster/munge/pid" --log-file="$cluster/log/munged" --seed-file="$cluster/munge/seed"
	until_true 300 munged test -S "$cluster/munge/socket"
}

# start_accounting opens no TCP port of MariaDB: MYSQL_UNIX_PORT names its socket to
# slurmdbd's client library.
start_accounting() {
	export MYSQL_UNIX_PORT=$cluster/mysql/socket
	mariadb-install-db --no-defaults --auth-root-authentication-method=socket --skip-test-db \
		--datadir="$cluster/mysql/data" --auth-root-socket-user="$user" --user="$user" >"$cluster/log/mariadb-install-db" 2>&1 ||
		fail "mariadb-install-db failed; see $cluster/log/mariadb-install-db"
	# slurmdbd would make it, but not with MariaDB's client library 3.4.10.
	echo 'CREATE DATABASE slurm;' >"$cluster/mysql/init.sql"
	keep mariadbd mariadbd --no-defaults --user="$user" --datadir="$cluster/mysql/data" --socket="$MYSQL_UNIX_PORT" \
		--skip-networking --pid-file="$cluster/mysql/pid" --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 \
		--init-file="$cluster/mysql/init.sql"
	until_true 300 mariadbd test -S "$MYSQL_UNIX_PORT"
	keep slurmdbd slurmdbd -D
	until_true 300 slurmdbd sacctmgr -n show cluster
}

# start_node NAME: starts slurmd in namespaces of its own. Its shared memory is its own too
# and ends with the node. A further user namespace gives an ordinary user its own id again.
start_node() {
	mkdir -p "$cluster/$1"
	# The shell stays, as process 1 of the namespace, which has to reap orphans.
	# shellcheck disable=SC2016 # expanded by the shell inside
	keep "$1" "${namespaces[@]}" \
		bash -c 'hostname "$1" && mount -t tmpfs none /dev/shm; mount --bind "$2" /etc/hosts; "${@:3}" slurmd -D -N "$1" & wait $!' \
		sh "$1" "$cluster/hosts" "${own_id[@]}"
}

up() {
	local missing nodes=4 port i health=''
	while [ $# -gt 0 ]; do
		case $1 in
		--no-accounting) accounting='' ;;
		--health) health=${2:?--health PROGRAM} && shift ;;
		*[!0-9]* | '') usage >&2; exit 2 ;;
		*) nodes=$1 ;;
		esac
		shift
	done
	if [ "$nodes" -lt 1 ] || [ "$nodes" -gt 64 ]; then
		say "$nodes nodes: want 1 to 64"
		exit 2
	fi
	missing=$(need) || fail "missing: $missing (./build.sh test-slurm installs them where apt can)"
	[ ! -e "$cluster" ] || fail "$cluster exists: jobs/test-cluster.sh down removes it"
	mkdir -m 755 "$cluster"
	trap 'down' EXIT
	mkdir "$cluster"/{log,pids,state,mysql,munge}
	port=$(free_ports $((nodes + 2)))
	write_slurm_conf "$nodes" "$port"
	write_hosts "$nodes" >"$cluster/hosts"
	start_munge
	[ -z "$accounting" ] || start_accounting
	keep slurmctld "$0" with-hosts slurmctld -D
	for ((i = 1; i <= nodes; i++)); do start_node "node$i"; done
	until_true 300 slurmctld all_idle "$nodes"
	trap - EXIT
	say "$nodes nodes are up in $cluster; eval \"\$(jobs/test-cluster.sh env)\""
}

all_idle() { [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" = "$1" ]; }

# alive NAME: whether the process of that name runs. Another process with its id is not it.
alive() {
	local pid
	pid=$(cat "$cluster/pids/$1" 2>/dev/null) &&
		tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxF "SLURM_CONF=$SLURM_CONF"
}

# end SIGNAL NAME: ends a daemon and waits until it is gone.
end() {
	local pid i
	alive "$2" || return 0
	pid=$(cat "$cluster/pids/$2")
	kill "-$1" "$pid" 2>/dev/null || return 0
	for i in {1..100}; do
		alive "$2" || return 0
		[ "$i" != 50 ] || kill -KILL "$pid" 2>/dev/null || true
		sleep 0.1
	done
}

down() {
	local file
	[ -d "$cluster/pids" ] || { say "no cluster in $cluster"; return 0; }
	if alive slurmctld; then
		timeout 10 scancel --user="$user" 2>/dev/null || true
	fi
	for file in "$cluster"/pids/node*; do
		[ ! -e "$file" ] || end KILL "${file##*/}" # with all that runs in its namespace
	done
	for file in slurmctld slurmdbd mariadbd munged; do end TERM "$file"; done
	rm -rf "$cluster"
	say "$cluster is removed"
}

status() {
	alive slurmctld || { say "no cluster in $cluster"; return 1; }
	sinfo -p test -N -o '%8N %10T %20E'
	squeue -o '%8i %12j %10T %6M %6D %N %r'
}

accounting=yes
case ${1:-help} in
up) up "${@:2}" ;;
down) down ;;
status) status ;;
kill)
	[ -e "$cluster/pids/${2:?kill NODE}" ] || fail "no node $2 in $cluster"
	end KILL "$2"
	;;
start)
	[ -e "$cluster/pids/${2:?start NODE}" ] || fail "no node $2 in $cluster"
	alive "$2" || start_node "$2"
	;;
env)
	printf 'export SLURM_CONF=%q\n' "$SLURM_CONF"
	[ "$(id -u)" != 0 ] || echo 'export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1'
	echo 'export UCX_TLS=tcp,self UCX_NET_DEVICES=lo' # else UCX takes the nodes for one
	# Open MPI looks for a network that reaches another host, and here all are this host. 5.0.7
	# takes lo, if it is told to. 6.0.0rc2 reaches other nodes over libfabric alone.
	if mpirun --version 2>/dev/null | grep -q 'Open MPI) 6'; then
		echo "export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_opal_common_ofi_provider_include='tcp;ofi_rxm' FI_TCP_IFACE=lo"
	else
		echo 'export OMPI_MCA_btl_tcp_if_include=lo'
	fi
	;;
with-hosts) with_hosts "${@:2}" ;;
need)
	[ "${2:-}" != --no-accounting ] || accounting=''
	need
	;;
help | -h | --help) usage ;;
*) usage >&2; exit 2 ;;
esac
