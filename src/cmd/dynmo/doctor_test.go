package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
)

func TestDoctor(t *testing.T) {
	var out, errs bytes.Buffer
	if status := execute(rootCommand(), []string{"doctor"}, &out, &errs); status != exitDone {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	for _, name := range examNames() {
		if !strings.Contains(out.String(), "\n"+name+" ") && !strings.HasPrefix(out.String(), name+" ") {
			t.Errorf("nothing of %s in\n%s", name, out.String())
		}
	}
	out.Reset()
	if status := execute(rootCommand(), []string{"doctor", "--json"}, &out, &errs); status != exitDone {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	lines := 0
	for line := range strings.Lines(out.String()) {
		var f finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		if f.Found == "" || !f.OK && (f.Gives == "" || f.Get == "") {
			t.Errorf("%s is told badly", line)
		}
		lines++
	}
	if lines != len(examNames()) {
		t.Errorf("%d lines, want %d", lines, len(examNames()))
	}
}

func TestDoctorRefuses(t *testing.T) {
	var out, errs bytes.Buffer
	if status := execute(rootCommand(), []string{"doctor", "--require", "mpi,moon"}, &out, &errs); status != exitUsage || !strings.Contains(errs.String(), "--require moon") {
		t.Errorf("status %d: %s", status, errs.String())
	}
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

func TestLibraryBuilt(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	for _, test := range []struct{ name, source, want string }{
		{"kernels", `const char dynmo_cuda_built[] = "sm_90; nvcc 11.8"; void dynmo_cuda_calls(void) {}`, "sm_90; nvcc 11.8"},
		{"emulator", `void dynmo_cuda_calls(void) {}`, "not built by build.sh cuda"},
		{"stranger", `void other(void) {}`, ""},
	} {
		source, library := filepath.Join(dir, test.name+".c"), filepath.Join(dir, test.name+".so")
		expect.OK(t, os.WriteFile(source, []byte(test.source), 0o666))
		if text, err := exec.Command(cc, "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if got, err := libraryBuilt(library); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
		}
	}
	if _, err := libraryBuilt(filepath.Join(dir, "kernels.c")); err == nil {
		t.Error("a text passed for a library")
	}
}
