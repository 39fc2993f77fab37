package launch

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
)

// TestBounds reads files in the formats of Linux: proc(5), cgroups(7), and the kernel's
// admin-guide/cgroup-v2.
func TestBounds(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []bound
	}{
		"nothing to read": {nil, nil},
		"no limits": {map[string]string{
			"proc/meminfo":     "MemTotal:       100 kB\nMemAvailable:    70 kB\n",
			"proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \nMax address space         unlimited            unlimited            bytes     \n",
			"proc/self/cgroup": "0::/\n",
		}, []bound{{"MemAvailable", 70 << 10}}},
		"ulimit -v": {map[string]string{
			"proc/self/limits": "Max address space         8192                 unlimited            bytes     \n",
			"proc/self/status": "Name:\tdynmo\nVmSize:\t       3 kB\n",
		}, []bound{{"ulimit -v of process 7", 5 << 10}}},
		"version 2, outer group": {map[string]string{
			"proc/self/cgroup":                  "0::/job/step\n",
			"sys/fs/cgroup/job/step/memory.max": "max\n",
			"sys/fs/cgroup/job/memory.max":      "1000\n",
			"sys/fs/cgroup/job/memory.current":  "600\n",
			"sys/fs/cgroup/job/memory.stat":     "anon 200\nfile 400\ninactive_file 300\n",
		}, []bound{{"control group /job", 700}}},
		"version 1": {map[string]string{
			"proc/self/cgroup":                               "5:devices:/\n4:memory:/job\n0::/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":     "5\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1000\n",
			"sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1600\n",
			"sys/fs/cgroup/memory/job/memory.stat":           "inactive_file 1\ntotal_inactive_file 100\n",
		}, []bound{{"control group /job", 0}}},
	} {
		root := fstest.MapFS{}
		for file, text := range c.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := bounds(root, 7); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFit: ranks of one host share bounds of the same name. A rank of another host has its own
// bound.
func TestFit(t *testing.T) {
	world := comm.New(peers{local.World(1)[0], []string{"a", "a", "b"}}, comm.Options{})
	host := func(gib int64) []bound { return []bound{{"MemAvailable", gib << 30}} }
	for _, c := range []struct {
		name   string
		bounds [3][]bound
		needs  [3]int64 // GiB
		want   string   // part of the error; "": none
	}{
		{"enough", [3][]bound{host(4), host(4), host(2)}, [3]int64{2, 2, 2}, ""},
		{"nothing known", [3][]bound{}, [3]int64{1 << 20, 0, 0}, ""},
		{"two ranks of a host", [3][]bound{host(4), host(3), host(9)}, [3]int64{2, 2, 2}, "ranks on host a (2) need 4.00 GiB, 3.00 GiB are available (MemAvailable)"},
		{"the other host", [3][]bound{host(4), host(4), host(1)}, [3]int64{2, 2, 2}, "ranks on host b (1) need 2.00 GiB, 1.00 GiB are"},
		{"bounds of their own", [3][]bound{{{"ulimit -v of process 1", 2 << 30}}, {{"ulimit -v of process 2", 1 << 30}}, nil}, [3]int64{2, 2, 2},
			"(1) need 2.00 GiB, 1.00 GiB are available (ulimit -v of process 2)"},
	} {
		all, needs := make([]arrival, 3), make([]int64, 3)
		for rank := range all {
			all[rank].Bounds, needs[rank] = c.bounds[rank], c.needs[rank]<<30
		}
		err := checkFit(world, all, "", needs)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if shared, ok := err.(comm.SharedError); err != nil && !(ok && shared.Input) {
			t.Errorf("%s: not an error of the input", c.name)
		}
	}
}

// peers is a world on several hosts.
type peers struct {
	comm.Transport
	hosts []string
}

func (p peers) Size() int               { return len(p.hosts) }
func (p peers) Peer(rank int) comm.Peer { return comm.Peer{World: rank, Host: p.hosts[rank], PID: -1} }
