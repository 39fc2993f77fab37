package launch

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"dynmo/src/comm"
	"dynmo/src/expect"
)

// host returns the files of a host as Linux writes them (sysfs-devices-node,
// sysfs-devices-system-cpu, sysfs-bus-pci). The host has the given NUMA nodes, cores per node and
// threads per core. Second threads of cores are numbered behind all cores. gpus has the node of
// each GPU; GPU i has bus number i.
func host(nodes, cores, threads int, gpus ...int) fstest.MapFS {
	root := fstest.MapFS{}
	add := func(text, format string, values ...any) {
		root[fmt.Sprintf(format, values...)] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	for node := range nodes {
		var own []int
		for cpu := range nodes * cores * threads {
			if core := cpu % (nodes * cores); core/cores == node {
				own = append(own, cpu)
				siblings := []int{core, core + nodes*cores}
				add(ranges(siblings[:threads]), "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)
			}
		}
		add(ranges(own), "sys/devices/system/node/node%d/cpulist", node)
	}
	for gpu, node := range gpus {
		add(fmt.Sprint(node), "sys/bus/pci/devices/0000:%02x:00.0/numa_node", gpu)
	}
	return root
}

// TestBindings computes bindings and notes from the files of hosts.
func TestBindings(t *testing.T) {
	const few = "ranks 0-1 have fewer than 4 cores each; " +
		"sbatch --cpus-per-task=4 --hint=nomultithread asks for 4, mpirun --bind-to none takes all of the host"
	const far = "the launcher keeps ranks 1 away from the NUMA nodes of their GPUs; " +
		"srun --cpu-bind=none and mpirun --bind-to none leave the choice to dynmo"
	span := func(first, last int) (list []int) {
		for cpu := first; cpu <= last; cpu++ {
			list = append(list, cpu)
		}
		return list
	}
	all := func(processors, ranks int) [][]int { return slices.Repeat([][]int{span(0, processors-1)}, ranks) }
	for _, c := range []struct {
		name    string
		root    fstest.MapFS
		gpus    int // per host; further ranks are on the next host
		allowed [][]int
		want    []string // lines, then notes
	}{
		{"two sockets, hardware threads", host(2, 8, 2, 0, 0, 1, 1), 4, all(32, 8), []string{"0-7 on 2 hosts, n0 to n1 " +
			"(cores 0-3,16-19: 4 physical on NUMA node 0; 4-7,20-23: 4 physical on NUMA node 0; 8-11,24-27: 4 physical on NUMA node 1; 12-15,28-31: 4 physical on NUMA node 1)"}},
		{"GPUs against the order of cores", host(2, 4, 1, 1, 0), 2, all(8, 2), []string{"0-1 on n0 (cores 4-7: 4 physical on NUMA node 1; 0-3: 4 physical on NUMA node 0)"}},
		{"three on a node", host(1, 14, 1, 0, 0, 0), 3, all(14, 3), []string{"0-2 on n0 (cores 0-3: 4 physical on NUMA node 0; 4-8: 5 physical on NUMA node 0; 9-13: 5 physical on NUMA node 0)"}},
		{"threads are no cores", host(1, 4, 2, 0, 0), 2, all(8, 2), []string{"0-1 on n0 (cores 0-1,4-5: 2 physical on NUMA node 0; 2-3,6-7: 2 physical on NUMA node 0)", few}},
		{"more ranks than cores", host(1, 1, 1, 0, 0), 2, all(1, 2), []string{"0-1 on n0 (cores 0: 1 physical on NUMA node 0)", few}},
		{"no NUMA", host(1, 8, 1, -1, -1), 2, all(8, 2), []string{"0-1 on n0 (cores 0-7: 8 physical)"}},
		{"a node of memory alone", host(1, 8, 2, 1, 1), 2, all(16, 2), []string{"0-1 on n0 (cores 0-15: 8 physical)"}},
		{"no files", fstest.MapFS{}, 1, all(8, 1), []string{"0 on n0 (cores 0-7: 8 physical)"}},
		{"one thread of each core, part of the host", host(2, 8, 2, 0, 1), 2, [][]int{span(2, 13), span(2, 13)}, []string{
			"0-1 on n0 (cores 2-7: 6 physical on NUMA node 0; 8-13: 6 physical on NUMA node 1)"}},
		{"bound by the launcher", host(2, 8, 1, 0, 0), 2, [][]int{span(0, 3), span(4, 7)}, []string{"0-1 on n0 (cores 0-3: 4 physical on NUMA node 0; 4-7: 4 physical on NUMA node 0)"}},
		{"bound to the wrong node", host(2, 8, 1, 0, 1), 2, [][]int{span(0, 3), span(4, 7)}, []string{"0-1 on n0 (cores 0-3: 4 physical on NUMA node 0; 4-7: 4 physical off NUMA node 1)", far}},
		{"bound across nodes", host(2, 8, 1, 0, 0), 2, [][]int{span(4, 8), span(7, 14)}, []string{"0-1 on n0 (cores 4-7: 4 physical on NUMA node 0; 7-14: 8 physical off NUMA node 0)", far}},
	} {
		arrivals := make([]arrival, len(c.allowed))
		for rank, allowed := range c.allowed {
			l := localityOf(c.root, fmt.Sprintf("00000000:%02x:00.0", rank%c.gpus), allowed)
			arrivals[rank] = arrival{Cores: allowed, Locality: &l}
		}
		peer := func(rank int) comm.Peer { return comm.Peer{Host: fmt.Sprintf("n%d", rank/c.gpus)} }
		placed := bindings(peer, arrivals)
		if got := append(placement(peer, arrivals, placed), bindingNotes(placed)...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestBind: every thread of the process is bound.
func TestBind(t *testing.T) {
	all := cores()
	expect.OK(t, bind(all[:1]))
	defer func() { expect.OK(t, bind(all)) }()
	threads, err := os.ReadDir("/proc/self/task")
	expect.OK(t, err)
	for _, thread := range threads {
		list, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/status")
		if want := fmt.Sprintf("\nCpus_allowed_list:\t%d\n", all[0]); err == nil && !strings.Contains(string(list), want) {
			t.Errorf("thread %s: no %q in %s", thread.Name(), want, list)
		}
	}
}
