package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/expect"
)

// TestMeet: a disagreement of ranks is one error, the same on all ranks.
func TestMeet(t *testing.T) {
	fine := arrival{Kernels: "cpu avx2", Files: map[string]string{"data.path": "abc", "model.weights": "def"}}
	for _, c := range []struct {
		name string
		odd  arrival // of rank 2
		want string
	}{
		{"alike", fine, ""},
		{"no corpus needed", arrival{Kernels: "cpu avx2"}, ""},
		{"error", arrival{Error: "no such file"}, "rank 2 (host "},
		{"kernels", arrival{Kernels: "cpu avx512"}, `computes with kernels "cpu avx512", rank 0 with "cpu avx2"; results would differ (DYNMO_ISA `},
		{"corpus", arrival{Kernels: "cpu avx2", Files: map[string]string{"data.path": "xyz"}}, ": data.path holds other data than on rank 0"},
		{"weights", arrival{Kernels: "cpu avx2", Files: map[string]string{"data.path": "abc", "model.weights": "xyz"}}, ": model.weights holds other data than on rank 0"},
		{"a file that only one rank reads", arrival{Kernels: "cpu avx2", Files: map[string]string{"dynamic.replay": "xyz"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			texts := make(map[string]int)
			err := local.Run(4, func(tr comm.Transport) error {
				mine := fine
				if tr.Rank() == 2 {
					mine = c.odd
				}
				_, err := meet(comm.New(tr, comm.Options{}), mine)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					texts[""]++
				} else {
					texts[err.Error()]++
				}
				return nil
			})
			expect.OK(t, err)
			if len(texts) != 1 {
				t.Fatalf("ranks have different errors: %v", texts)
			}
			for text := range texts {
				if (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
					t.Errorf("error %q, want …%s…", text, c.want)
				}
			}
		})
	}
}

// TestClockKind: the clock is virtual if the threads of a host's ranks outnumber the cores that
// they may use together, however each rank is bound.
func TestClockKind(t *testing.T) {
	for _, c := range []struct {
		name    string
		cores   [2][]int // by rank, of two ranks on one host
		kernels string
		threads int
		want    string
	}{
		{"both on both", [2][]int{{0, 1}, {0, 1}}, "cpu avx2", 1, "wall"},
		{"bound apart", [2][]int{{0}, {1}}, "cpu avx2", 1, "wall"},
		{"bound together", [2][]int{{0}, {0}}, "cpu avx2", 1, "virtual"},
		{"two threads", [2][]int{{0, 1, 2}, {0, 1, 2}}, "cpu avx2", 2, "virtual"},
		{"threads that ref has not", [2][]int{{0, 1}, {0, 1}}, "ref amd64", 2, "wall"},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings := config.Default()
			settings.Device.Threads = c.threads
			err := local.Run(2, func(tr comm.Transport) error {
				world := comm.New(tr, comm.Options{})
				all, err := meet(world, arrival{Cores: c.cores[tr.Rank()], Kernels: c.kernels})
				if err != nil {
					return err
				}
				if got := clockKind(settings, world, all); got != c.want {
					t.Errorf("clock %s, want %s", got, c.want)
				}
				if got := crowded(settings, world, all); (got != "") != (c.want == "virtual") {
					t.Errorf("crowded %q on clock %s", got, c.want)
				}
				return nil
			})
			expect.OK(t, err)
		})
	}
}

// processes is a world in which some ranks may share a process.
type processes struct {
	comm.Transport
	pids []int
}

func (p processes) Size() int               { return len(p.pids) }
func (p processes) Peer(rank int) comm.Peer { return comm.Peer{Host: "node", PID: p.pids[rank]} }

func TestAlone(t *testing.T) {
	if !alone(processes{pids: []int{7, 8, 9}}) {
		t.Error("three processes: not alone")
	}
	if alone(processes{pids: []int{7, 8, 7}}) {
		t.Error("two ranks of one process: alone")
	}
}

// TestGPURanks: ranks of one host with the same GPU are refused, unless the settings allow sharing.
// gpuRanks then lists each GPU's ranks.
func TestGPURanks(t *testing.T) {
	err := local.Run(3, func(tr comm.Transport) error {
		world, c := comm.New(tr, comm.Options{}), config.Default()
		own := []arrival{{GPU: "a"}, {GPU: "b"}, {}}
		if gpus, shared, err := gpuRanks(c, world, own); err != nil || shared || len(gpus) != 2 || len(gpus["b"]) != 1 {
			t.Errorf("%v, shared %v, %v: want two GPUs of one rank each", gpus, shared, err)
		}
		same := []arrival{{GPU: "a"}, {}, {GPU: "a"}}
		if _, _, err := gpuRanks(c, world, same); err == nil || !strings.HasPrefix(err.Error(), "ranks 0 and 2 (host ") {
			t.Errorf("error %v, want one that names both ranks", err)
		}
		c.Device.Share = true
		if gpus, shared, err := gpuRanks(c, world, same); err != nil || !shared || len(gpus["a"]) != 2 {
			t.Errorf("%v, shared %v, %v: want one GPU of two ranks", gpus, shared, err)
		}
		return nil
	})
	expect.OK(t, err)
}

// TestContentHash: executables with different build ids have different hashes, and so have
// different files without build ids.
func TestContentHash(t *testing.T) {
	path, err := os.Executable()
	expect.OK(t, err)
	binary, err := os.ReadFile(path)
	expect.OK(t, err)
	other := slices.Clone(binary)
	other[bytes.Index(binary, []byte("Go\x00\x00"))+4] ^= 1 // changes the text of the note, which follows its name
	seen, copied := make(map[[32]byte]bool), filepath.Join(t.TempDir(), "copy")
	for i, content := range [][]byte{binary, other, []byte("#!/bin/sh"), []byte("#!/bin/bash")} {
		expect.OK(t, os.WriteFile(copied, content, 0o600))
		hash, err := contentHash(copied)
		if expect.OK(t, err); seen[hash] {
			t.Errorf("file %d is taken for an earlier one", i)
		}
		seen[hash] = true
	}
	if mine, err := contentHash(path); err != nil || !seen[mine] {
		t.Errorf("%v; want what the copy has", err)
	}
}

func TestEqualizer(t *testing.T) {
	const ours = "cpu avx512 OpenBLAS 0.3.21 NO_AFFINITY Haswell MAX_THREADS=64 bf16 oneDNN 2.6.3"
	for theirs, want := range map[string]string{
		"cpu avx2 OpenBLAS 0.3.21 NO_AFFINITY Haswell MAX_THREADS=64":                     "DYNMO_ISA",
		"cpu avx512 OpenBLAS 0.3.34 NO_AFFINITY Haswell MAX_THREADS=64":                   "different versions of OpenBLAS",
		"cpu avx512 OpenBLAS 0.3.21 NO_AFFINITY Zen MAX_THREADS=64":                       "OPENBLAS_CORETYPE",
		"cpu avx512 OpenBLAS 0.3.21 NO_AFFINITY Haswell MAX_THREADS=64 bf16 oneDNN 3.7.2": "DYNMO_DNNL_LIBRARY",
		"cpu avx512 Intel MKL": "different BLAS libraries",
		"cpu avx512 BLIS":      "different BLAS libraries",
		"ref amd64":            "DYNMO_ISA",
	} {
		if got := equalizer(ours, theirs); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", theirs, got, want)
		}
	}
}
