package mpi

import (
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		name    string
		started time.Duration
		fails   bool
	}{{"in time", 59 * time.Second, false}, {"late", 61 * time.Second, true}} {
		synctest.Test(t, func(t *testing.T) { // its clock jumps over the waits
			var got error
			started := Within(time.Minute, func(err error) { got = err })
			time.Sleep(c.started)
			if !c.fails {
				started()
				time.Sleep(time.Hour)
			}
			if (got != nil) != c.fails || got != nil && !strings.Contains(got.Error(), "start: the ranks did not all begin in 1m0s: ") {
				t.Errorf("%s: %v", c.name, got)
			}
		})
	}
}

func TestAbsent(t *testing.T) {
	environ := func(launch, rank string) string {
		return "HOME=/\x00PMIX_NAMESPACE=" + launch + "\x00PMIX_RANK=" + rank + "\x00"
	}
	proc := fstest.MapFS{
		"meminfo":    {Data: []byte("MemTotal: 1 kB\n")},
		"10/environ": {Data: []byte(environ("job", "0"))},
		"10/stat":    {Data: []byte("10 (dynmo) R 1 10")},
		"11/environ": {Data: []byte(environ("job", "2"))},
		"11/stat":    {Data: []byte("11 (a) S) T 1 11")},
		"12/environ": {Data: []byte(environ("another", "1"))},
		"12/stat":    {Data: []byte("12 (dynmo) T 1 12")},
		"13/stat":    {Data: []byte("13 (another user's) S 1 13")},
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"all ranks on this host": {map[string]string{"PMIX_NAMESPACE": "job", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
			"rank 2 (pid 11) is stopped, rank 1 has ended, rank 3 has ended"},
		"ranks on other hosts": {map[string]string{"PMIX_NAMESPACE": "job", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
			"rank 2 (pid 11) is stopped, 2 of the 4 ranks on this host have ended"},
		"srun":             {map[string]string{"PMIX_NAMESPACE": "job", "SLURM_STEP_NUM_TASKS": "4"}, "rank 2 (pid 11) is stopped"},
		"unknown launcher": {nil, "none of this host is stopped or has ended; it is one of another host, or a slow one"},
	} {
		if got := absent(proc, func(key string) string { return c.env[key] }); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
