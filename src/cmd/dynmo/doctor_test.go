package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

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
