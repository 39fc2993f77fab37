package launch

import (
	"bufio"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"dynmo/src/comm"
	"dynmo/src/comm/nccl"
	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/layout"
)

// bound is a limit of memory. Ranks of one host share bounds of the same name.
type bound struct {
	Name string
	Room int64 // bytes left
}

// bounds returns the limits of a process's memory, read from the system's files: available memory
// of the host, rest of control groups, and address space.
func bounds(root fs.FS, pid int) []bound {
	var list []bound
	if kib, ok := field(root, "proc/meminfo", "MemAvailable:"); ok {
		list = append(list, bound{"MemAvailable", kib * 1024})
	}
	if limit, ok := field(root, "proc/self/limits", "Max address space"); ok {
		used, _ := field(root, "proc/self/status", "VmSize:")
		list = append(list, bound{fmt.Sprintf("ulimit -v of process %d", pid), max(0, limit-used*1024)})
	}
	return append(list, groupBounds(root)...)
}

// controllers has the file names of memory limits in both versions of Linux's control groups.
var controllers = []struct {
	line                string // of /proc/self/cgroup, before the group's path
	root                string
	limit, usage, cache string
}{
	{"0::", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
	{"memory:", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
}

// groupBounds returns the bounds of this process's control groups, up to the outermost visible
// group. Inactive page cache counts as free.
func groupBounds(root fs.FS) []bound {
	var list []bound
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		for _, c := range controllers {
			_, group, ok := strings.Cut(line, c.line)
			if !ok || c.line == "0::" && !strings.HasPrefix(line, c.line) {
				continue
			}
			for group = path.Clean("/" + strings.TrimSpace(group)); ; group = path.Dir(group) {
				dir := path.Join(c.root, group)
				limit, limited := field(root, path.Join(dir, c.limit), "")
				used, known := field(root, path.Join(dir, c.usage), "")
				if limited && known && limit < math.MaxInt64/2 { // version 1 writes such a number for no limit
					cache, _ := field(root, path.Join(dir, "memory.stat"), c.cache+" ")
					list = append(list, bound{"control group " + group, max(0, limit-max(0, used-cache))})
				}
				if group == "/" {
					break
				}
			}
		}
	}
	return list
}

// field returns the number behind a prefix in a line of a file.
func field(root fs.FS, file, prefix string) (int64, bool) {
	f, err := root.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), prefix)
		if words := strings.Fields(rest); ok && len(words) > 0 {
			n, err := strconv.ParseInt(words[0], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// fit returns an error if ranks that share a bound need more memory than it leaves. needs is by
// rank, in bytes. The error first suggests to lower the setting optional.
func fit(world *comm.Group, all []arrival, optional string, needs []int64) error {
	type key struct{ host, name string }
	type sum struct {
		ranks      int
		need, room int64
	}
	sums := make(map[key]sum)
	for rank, a := range all {
		for _, b := range a.Bounds {
			k := key{world.Peer(rank).Host, b.Name}
			s, seen := sums[k]
			if !seen || b.Room < s.room {
				s.room = b.Room
			}
			s.ranks, s.need = s.ranks+1, s.need+needs[rank]
			sums[k] = s
		}
	}
	for rank, a := range all {
		for _, b := range a.Bounds {
			host := world.Peer(rank).Host
			if s := sums[key{host, b.Name}]; s.need > s.room {
				more := "hosts"
				if a.GPU != "" {
					more = "parallel.stages"
				}
				return comm.Input(fmt.Errorf("memory: ranks on host %s (%d) need %s, %s are available (%s): wanted more "+more+", or less of "+optional+
					"model.blocks, model.hidden, model.vocab, model.sequence or parallel.microbatch_size",
					host, s.ranks, gib(s.need), gib(s.room), b.Name))
			}
		}
	}
	return nil
}

// optional returns the name of a setting that takes memory without changing results, for a list of
// names; "": none.
func optional(c config.Config) string {
	for _, kind := range dynamic.Active(c) {
		if kind.Lean == nil {
			continue
		}
		set, _ := kind.Lean(c)
		if name, _, ok := strings.Cut(set, " ="); ok {
			return name + ", "
		}
	}
	return ""
}

// byRank returns the bytes of every rank: the bytes of its stage, plus besides.
func byRank(m layout.Mesh, stages []int64, besides int64) []int64 {
	ranks := make([]int64, m.Stages*m.Replicas)
	for rank := range ranks {
		ranks[rank] = stages[m.Stage(rank)] + besides
	}
	return ranks
}

// transportBytes returns a function from a mesh to the bytes of a rank's GPU that the transport
// takes. At most onHost ranks share a host.
func transportBytes(c config.Config, kind transportKind, onHost int) func(stages, replicas int) int64 {
	return func(stages, replicas int) int64 {
		if kind != ncclTransport {
			return 0
		}
		return nccl.NeedsOf(stages, replicas, onHost, c.Comm.NcclCTAs).Bytes
	}
}

// gib formats bytes in GiB.
func gib(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }
