package launch

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"dynmo/src/comm"
	"dynmo/src/comm/mpi"
	"dynmo/src/config"
)

// arrival is the message in which a rank describes itself to the others before the first step.
type arrival struct {
	Error   string // first error of this rank; "": none
	Cores   []int  // processors that this process may run on
	Kernels string // the bits of its arithmetic depend on them
	// Files has the hash of what this rank reads, by setting. A file that is the same for all ranks may
	// be absent.
	Files    map[string]string
	GPU      string    // the rank's GPU; "": none
	Bounds   []bound   // of the host memory that the rank uses; none for a GPU
	Locality *locality // where the process may run; nil unless the rank has a GPU and is alone in its process
}

// agree returns an error unless all processes run the same binary and configuration, and their
// number is the number of ranks. Collective.
func agree(c config.Config, t comm.Transport) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	binary, err := contentHash(path)
	if err != nil {
		return err
	}
	for _, a := range []struct {
		what string
		hash [sha256.Size]byte
	}{{"binary", binary}, {"configuration", sha256.Sum256([]byte(c.TOML()))}} {
		if err := mpi.Agree(a.what, a.hash); err != nil {
			return comm.Input(err)
		}
	}
	if err := grid(c).Check(t.Size()); err != nil {
		return comm.Input(err)
	}
	return nil
}

// contentHash returns the same hash for executables of the same content. It hashes the build id
// that Go's linker notes in an executable. A file without a build id is read as a whole, which
// takes longer the more ranks a host has.
func contentHash(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h, from := sha256.New(), io.Reader(f)
	if e, err := elf.NewFile(f); err == nil && e.Section(".note.go.buildid") != nil {
		from = e.Section(".note.go.buildid").Open()
	}
	if _, err := io.Copy(h, from); err != nil { // in pieces, so that the file does not count as this rank's memory
		return sum, fmt.Errorf("%s: %w", path, err)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// meet gathers the arrivals of all ranks. If ranks have errors, every rank returns the error of the
// first. meet also fails if ranks would compute with different kernels or read different texts.
// Collective.
func meet(world *comm.Group, mine arrival) ([]arrival, error) {
	all, err := exchange(world, mine)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	for rank, a := range all {
		who := world.Peer(rank)
		blame := func(text string) error {
			return comm.Input(fmt.Errorf("rank %d (host %s): %s", who.World, who.Host, text))
		}
		switch {
		case a.Error != "":
			return nil, blame(a.Error)
		case a.Kernels != all[0].Kernels:
			return nil, blame(fmt.Sprintf("computes with kernels %q, rank 0 with %q; results would differ (%s)",
				a.Kernels, all[0].Kernels, equalizer(a.Kernels, all[0].Kernels)))
		}
		for _, name := range slices.Sorted(maps.Keys(a.Files)) {
			if first, read := all[0].Files[name]; read && a.Files[name] != first {
				return nil, blame(name + " holds other data than on rank 0")
			}
		}
	}
	return all, nil
}

// equalizer says how two ranks get the same kernels. Kernels are named like "cpu avx512 OpenBLAS 0.3.21
// … Haswell MAX_THREADS=64": dynmo's own path, then the BLAS with its version and kernels.
func equalizer(a, b string) string {
	a, onednn, _ := strings.Cut(a, " oneDNN ")
	b, others, _ := strings.Cut(b, " oneDNN ")
	ours, theirs := strings.Fields(a), strings.Fields(b)
	switch {
	case a == b && onednn != others:
		return "the hosts have different versions of oneDNN, or one has none, or their CPUs have other instructions; DYNMO_DNNL_LIBRARY names the file that is opened, and DNNL_MAX_CPU_ISA limits the instructions"
	case len(ours) < 3 || len(theirs) < 3 || ours[1] != theirs[1]:
		return "DYNMO_ISA chooses dynmo's path"
	case ours[2] != theirs[2]:
		return "the hosts have different BLAS libraries"
	case ours[2] != "OpenBLAS" || len(ours) < 4 || len(theirs) < 4 || ours[3] != theirs[3]:
		return "the hosts have different versions of " + ours[2]
	}
	return "OPENBLAS_CORETYPE chooses OpenBLAS's kernels, such as Haswell; OpenBLAS ignores a name that it does not know"
}

// cores returns the processors that this process may run on; nil if the system does not report
// them.
func cores() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var list []int
	for cpu := 0; len(list) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}

// perHost counts the ranks on every host.
func perHost(world *comm.Group) map[string]int {
	n := make(map[string]int)
	for rank := range world.Size() {
		n[world.Peer(rank).Host]++
	}
	return n
}

// alone reports whether every rank of the world is a process of its own.
func alone(world comm.Transport) bool {
	seen := make(map[[2]any]bool)
	for rank := range world.Size() {
		p := world.Peer(rank)
		seen[[2]any{p.Host, p.PID}] = true
	}
	return len(seen) == world.Size()
}

// clockKind returns the clock that the settings ask for. auto is virtual if the threads of a host's
// ranks outnumber their cores.
func clockKind(c config.Config, world *comm.Group, all []arrival) string {
	if c.Run.Clock != "auto" {
		return c.Run.Clock
	}
	if crowded(c, world, all) != "" {
		return "virtual"
	}
	return "wall"
}

// crowded describes a host on which the threads of the ranks outnumber their cores: "4 ranks on the
// 2 cores of host vm". It returns "" if there is none.
func crowded(c config.Config, world *comm.Group, all []arrival) string {
	threads := 1
	if strings.HasPrefix(all[0].Kernels, "cpu") { // other kernels use one thread
		threads = c.Device.Threads
	}
	allowed := make(map[string]map[int]bool)
	for rank, a := range all {
		host := world.Peer(rank).Host
		if allowed[host] == nil {
			allowed[host] = make(map[int]bool)
		}
		for _, core := range a.Cores {
			allowed[host][core] = true
		}
	}
	ranks := perHost(world)
	for _, host := range slices.Sorted(maps.Keys(ranks)) {
		if n, cores := ranks[host], len(allowed[host]); n*threads > cores {
			return fmt.Sprintf("%d ranks on the %d cores of host %s", n, cores, host)
		}
	}
	return ""
}
