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

// bound is a limit of memory. Ranks of one host share the bounds that have the same name.
type bound struct {
	Name string // what sets the limit, for errors: "control group /job"
	Left int64  // bytes that are not in use yet
}

// bounds returns the bounds of this process's memory, read from files of the system below root. These
// are the available memory of the host, the limits of control groups, and the address space. pid is
// the process's number, for names.
func bounds(root fs.FS, pid int) []bound {
	var list []bound
	if kib, ok := readNumber(root, "proc/meminfo", "MemAvailable:"); ok {
		list = append(list, bound{"MemAvailable", kib * 1024})
	}
	if limit, ok := readNumber(root, "proc/self/limits", "Max address space"); ok {
		used, _ := readNumber(root, "proc/self/status", "VmSize:")
		list = append(list, bound{fmt.Sprintf("ulimit -v of process %d", pid), max(0, limit-used*1024)})
	}
	return append(list, groupBounds(root)...)
}

// cgroupVersions says where version 2 and version 1 of Linux's control groups keep memory limits.
var cgroupVersions = []struct {
	line         string // text before the group's path in a line of /proc/self/cgroup
	root         string // the folder of the outermost group
	limit, usage string // names of files in a group's folder
	cache        string // the line of the group's memory.stat that has the inactive page cache
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
		for _, v := range cgroupVersions {
			_, group, ok := strings.Cut(line, v.line)
			if !ok || v.line == "0::" && !strings.HasPrefix(line, v.line) {
				continue
			}
			for group = path.Clean("/" + strings.TrimSpace(group)); ; group = path.Dir(group) {
				dir := path.Join(v.root, group)
				limit, limited := readNumber(root, path.Join(dir, v.limit), "")
				used, known := readNumber(root, path.Join(dir, v.usage), "")
				if limited && known && limit < math.MaxInt64/2 { // version 1 writes a larger number for no limit
					cache, _ := readNumber(root, path.Join(dir, "memory.stat"), v.cache+" ")
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

// readNumber returns the number after prefix in the first line of a file that begins with prefix. ok is
// false if there is no such number.
func readNumber(root fs.FS, file, prefix string) (n int64, ok bool) {
	f, err := root.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		rest, found := strings.CutPrefix(lines.Text(), prefix)
		if words := strings.Fields(rest); found && len(words) > 0 {
			n, err = strconv.ParseInt(words[0], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// checkFit returns an error if the ranks that share a bound need more memory than is left. needs has
// the bytes of each rank. If ranks report different values of a bound, the smallest counts. The error
// advises to use less of the settings in optional first (see optionalSetting).
func checkFit(world *comm.Group, all []arrival, optional string, needs []int64) error {
	type key struct{ host, name string }
	type sum struct {
		ranks      int
		need, left int64 // bytes
	}
	sums := make(map[key]sum)
	for rank, a := range all {
		for _, b := range a.Bounds {
			k := key{world.Peer(rank).Host, b.Name}
			s, seen := sums[k]
			if !seen || b.Left < s.left {
				s.left = b.Left
			}
			s.ranks, s.need = s.ranks+1, s.need+needs[rank]
			sums[k] = s
		}
	}
	for rank, a := range all {
		for _, b := range a.Bounds {
			host := world.Peer(rank).Host
			if s := sums[key{host, b.Name}]; s.need > s.left {
				more := "hosts"
				if a.GPU != "" {
					more = "parallel.stages"
				}
				return comm.Input(fmt.Errorf("memory: ranks on host %s (%d) need %s, %s are available (%s): wanted more %s, or less of "+
					"%smodel.blocks, model.hidden, model.vocab, model.sequence or parallel.microbatch_size",
					host, s.ranks, gib(s.need), gib(s.left), b.Name, more, optional))
			}
		}
	}
	return nil
}

// optionalSetting returns the name of a setting that takes memory without changing results, with a
// comma after it, for the list in checkFit's error. It returns "" if there is no such setting.
func optionalSetting(c config.Config) string {
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

// bytesByRank returns the bytes of every rank: those of its stage, plus the transport's.
func bytesByRank(m layout.Mesh, stages []int64, transport int64) []int64 {
	ranks := make([]int64, m.Stages*m.Replicas)
	for rank := range ranks {
		ranks[rank] = stages[m.Stage(rank)] + transport
	}
	return ranks
}

// transportBytes returns a function that computes how many bytes of a rank's GPU the transport takes
// in a mesh of stages and replicas. At most onHost ranks share a host.
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
