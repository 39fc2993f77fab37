package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"dynmo/src/expect"
)

func TestDoctor(t *testing.T) {
	out := said(t, "doctor")
	for _, name := range examNames() {
		if !strings.Contains("\n"+out, "\n"+name+" ") {
			t.Errorf("nothing of %s in\n%s", name, out)
		}
	}
	findings := decodedLines[finding](t, said(t, "doctor", "--json"))
	for _, f := range findings {
		if f.Found == "" || !f.OK && (f.Gives == "" || f.Get == "") {
			t.Errorf("%+v is told badly", f)
		}
	}
	if len(findings) != len(examNames()) {
		t.Errorf("%d lines, want %d", len(findings), len(examNames()))
	}
}

func TestDoctorRefuses(t *testing.T) {
	says("doctor", "--require", "mpi,moon").refused(t, exitUsage, "--require moon")
}

func TestFindings(t *testing.T) {
	findings := examine([]exam{
		{"here", "much", "somewhere", func() (string, error) { return "one\ntwo", nil }},
		{"gone", "much", "somewhere", func() (string, error) { return "", errors.New("not\nthere") }},
	})
	var out bytes.Buffer
	expect.OK(t, writeFindings(&out, findings))
	const want = `here  yes  one
           two
gone  no   not there
           gives much; get it: somewhere
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if err := missing(findings, []string{"here"}); err != nil {
		t.Error(err)
	}
	if err := missing(findings, []string{"here", "gone"}); err == nil || err.Error() != "this machine lacks gone" {
		t.Errorf("error %v", err)
	}
}

func TestMemTotal(t *testing.T) {
	if got := memTotal("MemFree: 1 kB\nMemTotal:       3145728 kB\n"); got != "3.0 GiB" {
		t.Errorf("%s, want 3.0 GiB", got)
	}
	if got := memTotal(""); got != "unknown" {
		t.Errorf("%s, want unknown", got)
	}
}

func TestPMIxFlavours(t *testing.T) {
	const both = "MPI plugin types are...\n\tnone\n\tpmi2\n\tcray_shasta\n\tpmix\nspecific pmix plugin versions available: pmix_v4,pmix_v5"
	if got, err := pmixOf(both); err != nil || got != "pmi2, cray_shasta, pmix_v4, pmix_v5" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := pmixOf("MPI plugin types are...\n\tnone\n\tpmi2"); err == nil || err.Error() != "srun has no pmix: pmi2" {
		t.Errorf("error %v", err)
	}
}

// TestTraps: a version has the notes of its own range, and every trap has a version that shows it.
func TestTraps(t *testing.T) {
	for _, c := range []struct {
		exam, found string
		want        []string // words of the notes, in order
		not         string
	}{
		{"mpi", "Open MPI 4.1.4", []string{"about a second"}, "at once"},
		{"mpi", "Open MPI 5.0.7, which started this process", []string{"ignores", "quarter of a second", "status 0", "mixes"}, "at once"},
		{"mpi", "Open MPI 6.0.0rc2", []string{"ignores", "at once"}, "quarter"},
		{"mpi", "MPICH 4.2.1; mpirun is of Open MPI 5.0.7, which may start no ranks of it", []string{"SIGUSR2", "no rank ends", "status 0", "pmi2"}, "Open MPI"},
		{"mpi", "MPICH 5.0.2", []string{"SIGUSR2", "no rank ends"}, "pmi2"},
		{"slurm", "slurm-wlm 22.05.8, outside of a job", []string{"slurmdbd", "SLURM_PMIX_FENCE"}, "resolve"},
		{"slurm", "slurm 24.11.5, outside of a job", []string{"does not resolve", "SLURM_PMIX_FENCE"}, "slurmdbd"},
		{"pmix", "pmix_v5, pmi2; OpenPMIx 5.0.9", []string{"hang"}, ""},
		{"pmix", "pmix_v5, pmi2; OpenPMIx 5.0.7", nil, ""},
		{"blas", "cpu avx512 OpenBLAS 0.3.34 NO_LAPACKE", []string{"9th digit"}, ""},
		{"blas", "cpu avx512 OpenBLAS 0.3.29 NO_LAPACKE", nil, ""},
		{"kernels", "/x/libdynmo_cuda.so: version 9; sm_80 compute_80; nvcc 11.8", []string{"Hopper"}, ""},
		{"kernels", "/x/libdynmo_cuda.so: version 9; sm_80 compute_80; nvcc 12.4", nil, ""},
		{"nccl", "2.29.7", nil, ""},
	} {
		got := trapsOf(c.exam, c.found)
		if len(got) != len(c.want) {
			t.Errorf("%s: %d notes, want %d: %q", c.found, len(got), len(c.want), got)
			continue
		}
		for i, word := range c.want {
			if !strings.Contains(got[i], word) || c.not != "" && strings.Contains(got[i], c.not) {
				t.Errorf("%s: note %q, want one with %q and without %q", c.found, got[i], word, c.not)
			}
		}
	}
}

func TestMPIName(t *testing.T) {
	for text, want := range map[string]string{
		"Open MPI v5.0.7, package: Debian OpenMPI, ident: 5.0.7, repo rev: v5.0.7, Feb 14, 2025": "Open MPI 5.0.7",
		"Open MPI v6.0.0rc2, package: Debian OpenMPI":                                            "Open MPI 6.0.0rc2",
		"mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/":      "Open MPI 4.1.4",
		"MPICH Version:      4.2.1\nMPICH Release date: Wed Apr 17":                              "MPICH 4.2.1",
		"HYDRA build details:\n    Version:                                 5.0.2\n    Release":  "MPICH 5.0.2",
		"Intel(R) MPI Library 2021.13\nmore":                                                     "Intel(R) MPI Library 2021.13",
	} {
		if got := mpiName(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestLimits: advice names only the limits that are too low.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		locked, files uint64
		want, not     string // parts of the text
	}{
		{unix.RLIM_INFINITY, 20000, "locked memory (ulimit -l): unlimited; open files (ulimit -n): 20000", "want"},
		{8 << 20, 20000, "locked memory: 8192 KiB, want at least 1048576 KiB (ulimit -l unlimited", "open files"},
		{unix.RLIM_INFINITY, 256, "open files: 256, want at least 1024 (ulimit -n 4096", "locked memory"},
		{8 << 20, 256, "LimitMEMLOCK=infinity); open files: 256", "unlimited;"},
	} {
		text, err := judgeLimits(c.locked, c.files)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, c.want) || strings.Contains(text, c.not) || (err == nil) != (c.not == "want") {
			t.Errorf("%d bytes, %d files: %q, %v; want %q without %q", c.locked, c.files, text, err, c.want, c.not)
		}
	}
}
