package launch

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"dynmo/src/comm"
)

// leastCores is the number of cores that the rank of a GPU needs for its own thread,
// NCCL's, MPI's and the garbage collector's.
const leastCores = 4

// locality describes where the rank of a GPU may run. A core is the list of its hardware threads
// that the launcher allows, by processor number.
type locality struct {
	Node      int     // of the GPU; -1: unknown, or none
	Near, Far [][]int // cores on that node, and other cores
}

// localityOf returns the locality of the GPU at a PCI address, for a process that may run on the
// allowed processors.
func localityOf(root fs.FS, bus string, allowed []int) locality {
	l := locality{Node: -1}
	var onNode []int
	device := strings.TrimPrefix(bus, "0000") // CUDA writes the domain in eight digits, the kernel in four
	if node, ok := readNumber(root, "sys/bus/pci/devices/"+device+"/numa_node", ""); ok && node >= 0 {
		onNode = processorList(root, fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node))
		if len(onNode) > 0 { // a node may have memory only
			l.Node = int(node)
		}
	}
	for _, cpu := range allowed {
		core := processorList(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
		core = slices.DeleteFunc(core, func(sibling int) bool { return !slices.Contains(allowed, sibling) })
		if len(core) == 0 { // the file does not exist
			core = []int{cpu}
		}
		switch {
		case core[0] != cpu: // listed with the core's first processor
		case slices.Contains(onNode, cpu):
			l.Near = append(l.Near, core)
		default:
			l.Far = append(l.Far, core)
		}
	}
	return l
}

// processorList reads the numbers in a file such as "0-3,64-67"; nil if there are none.
func processorList(root fs.FS, file string) (list []int) {
	text, _ := fs.ReadFile(root, file)
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, _ := strings.Cut(part, "-")
		n, err := strconv.Atoi(first)
		end, _ := strconv.Atoi(cmp.Or(last, first))
		for ; err == nil && n <= end; n++ {
			list = append(list, n)
		}
	}
	return list
}

// binding is the set of cores that the rank of a GPU runs on. It is zero for other ranks.
type binding struct {
	locality
	Cores [][]int
}

// isFar reports whether the launcher left the rank too few cores near its GPU.
func (b binding) isFar() bool {
	return b.Node >= 0 && len(b.Near) < min(leastCores, len(b.Near)+len(b.Far))
}

// processors returns the processors of the binding, ascending.
func (b binding) processors() []int { return slices.Sorted(slices.Values(slices.Concat(b.Cores...))) }

// String returns the processors and the number of cores of the binding: "0-3,16-19: 4 physical on
// NUMA node 0".
func (b binding) String() string {
	text := fmt.Sprintf("%s: %d physical", ranges(b.processors()), len(b.Cores))
	if b.Node >= 0 {
		text += fmt.Sprintf(" %s NUMA node %d", map[bool]string{false: "on", true: "off"}[b.isFar()], b.Node)
	}
	return text
}

// bindings returns the binding of every rank. A rank runs on the allowed cores of its GPU's NUMA
// node. Ranks of one host that share such cores split them evenly. A rank that is far, or whose
// NUMA node is unknown, keeps the launcher's cores.
func bindings(peer func(rank int) comm.Peer, all []arrival) []binding {
	list := make([]binding, len(all))
	shared := make(map[string][]int)
	for rank, a := range all {
		if a.Locality == nil {
			continue
		}
		b := binding{*a.Locality, slices.Concat(a.Locality.Near, a.Locality.Far)}
		if list[rank] = b; b.Node >= 0 && !b.isFar() {
			cores := fmt.Sprint(peer(rank).Host, b.Near)
			shared[cores] = append(shared[cores], rank)
		}
	}
	for _, ranks := range shared {
		for i, rank := range ranks {
			near, k := list[rank].Near, len(ranks)
			if n := len(near); n >= k {
				near = near[i*n/k : (i+1)*n/k]
			}
			list[rank].Cores = near
		}
	}
	return list
}

// bind restricts all threads of this process to the given processors. Later threads inherit the
// restriction.
func bind(processors []int) error {
	var set unix.CPUSet
	for _, cpu := range processors {
		set.Set(cpu)
	}
	for range 2 { // a thread may have started another one during the first pass
		threads, err := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			id, _ := strconv.Atoi(t.Name())
			if failed := unix.SchedSetaffinity(id, &set); failed != unix.ESRCH { // ESRCH: the thread has ended
				err = cmp.Or(err, failed)
			}
		}
		if err != nil {
			return fmt.Errorf("bind to cores %s: %w", ranges(processors), err)
		}
	}
	return nil
}

// bindingNotes describes ranks of GPUs that have too few cores, or cores far from their GPU. Each
// note includes the remedy.
func bindingNotes(placed []binding) (notes []string) {
	var few, far []int
	for rank, b := range placed {
		if len(b.Cores) > 0 && len(b.Cores) < leastCores {
			few = append(few, rank)
		}
		if b.isFar() {
			far = append(far, rank)
		}
	}
	if few != nil {
		notes = append(notes, fmt.Sprintf("ranks %s have fewer than %d cores each; sbatch --cpus-per-task=%[2]d --hint=nomultithread "+
			"asks for %[2]d, mpirun --bind-to none takes all of the host", ranges(few), leastCores))
	}
	if far != nil {
		notes = append(notes, fmt.Sprintf("the launcher keeps ranks %s away from the NUMA nodes of their GPUs; "+
			"srun --cpu-bind=none and mpirun --bind-to none leave the choice to dynmo", ranges(far)))
	}
	return notes
}
