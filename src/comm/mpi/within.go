package mpi

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"dynmo/src/comm"
)

const (
	// turn is how much later than the rank before it a rank says that a start takes
	// too long: the launcher of the first one that can ends the others meanwhile.
	turn = 2 * time.Second
	// turns is the number of ranks that take turns; later ones share the last.
	turns = 8
)

// Within calls fail, in a goroutine of its own, unless started is called within a
// limit: MPI_Init and collectives of MPI wait for a rank that is stopped or has
// ended for good. fail ends the process; from then on started does not return.
func Within(limit time.Duration, fail func(error)) (started func()) {
	rank := LaunchRank()
	stop := comm.AfterFunc(limit+time.Duration(min(rank, turns))*turn, func() {
		host, _ := os.Hostname()
		fail(fmt.Errorf("rank %d (host %s): start: the ranks did not all begin in %v: %s", rank, host, limit,
			absent(os.DirFS("/proc"), os.Getenv)))
	})
	return func() {
		if !stop() {
			select {}
		}
	}
}

// absent says which ranks that the launcher started on this host do not run.
func absent(proc fs.FS, getenv func(string) string) string {
	seen := processes(proc, getenv("PMIX_NAMESPACE"))
	here, _ := strconv.Atoi(getenv("OMPI_COMM_WORLD_LOCAL_SIZE"))
	size := launchSize(getenv)
	var list []string
	for _, rank := range seen {
		if rank.stopped {
			list = append(list, fmt.Sprintf("rank %d (pid %d) is stopped", rank.rank, rank.pid))
		}
	}
	switch {
	case len(seen) == 0 || len(seen) >= here:
	case here == size: // all ranks are here, so their numbers are known
		for rank := range size {
			if !slices.ContainsFunc(seen, func(p process) bool { return p.rank == rank }) {
				list = append(list, fmt.Sprintf("rank %d has ended", rank))
			}
		}
	default:
		list = append(list, fmt.Sprintf("%d of the %d ranks on this host have ended", here-len(seen), here))
	}
	if list == nil {
		return "none of this host is stopped or has ended; it is one of another host, or a slow one"
	}
	return strings.Join(list, ", ")
}

// launchSize returns how many ranks the innermost launcher meant, 0 if it does not say.
func launchSize(getenv func(string) string) int {
	for _, name := range sizeVariables {
		if size, err := strconv.Atoi(getenv(name)); err == nil {
			return size
		}
	}
	return 0
}

// process is one that a launcher started as a rank.
type process struct {
	rank, pid int
	stopped   bool
}

// processes returns the ranks of a launch that run on this host, by rank. A rank's
// own children count as it does.
func processes(proc fs.FS, launch string) []process {
	if launch == "" {
		return nil
	}
	var list []process
	dirs, _ := fs.ReadDir(proc, ".")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		environ, _ := fs.ReadFile(proc, path.Join(dir.Name(), "environ")) // others' cannot be read
		stat, _ := fs.ReadFile(proc, path.Join(dir.Name(), "stat"))
		variables := strings.Split(string(environ), "\x00")
		if !slices.Contains(variables, "PMIX_NAMESPACE="+launch) {
			continue
		}
		for _, v := range variables {
			text, ok := strings.CutPrefix(v, "PMIX_RANK=")
			rank, err := strconv.Atoi(text)
			if ok && err == nil && !slices.ContainsFunc(list, func(p process) bool { return p.rank == rank }) {
				list = append(list, process{rank, pid, comm.Halted(stat)})
			}
		}
	}
	slices.SortFunc(list, func(a, b process) int { return a.rank - b.rank })
	return list
}
