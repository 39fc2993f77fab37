package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/record"
)

// TestNothingIsWrittenOver: without --force no command overwrites existing files. With --force it
// replaces them.
func TestNothingIsWrittenOver(t *testing.T) {
	model := hfModel(t, 5, 3, 4, true)
	run := recorded(t, record.Metrics{Clock: "wall", Loss: 5.5, StepSeconds: 1})
	workbench(t, "")
	write(t, "a.txt", "a text")
	said(t, "ckpt", "import", model, "-o", "w.safetensors")
	expect.OK(t, os.Mkdir("records", 0o777))
	expect.OK(t, os.Mkdir("again", 0o777))
	write(t, "records/a.0.jsonl", `{"node":"a","device":"host","model":"m","check":"triad","value":1,"unit":"GB/s","status":"measured"}`+"\n"+`{"node":"a","status":"ended"}`+"\n")
	expect.OK(t, os.Mkdir("hf", 0o777))
	for _, c := range []struct{ args, lies, named, made string }{
		{"data prepare a.txt -o o.bin", "o.bin", "o.bin", "o.bin"},
		{"data prepare a.txt -o i.bin", "i.idx", "i.idx", "i.bin"},
		{"data prepare a.txt --format megatron -o m.bin", "m.bin", "m.bin", "m.idx"},
		{"ckpt import " + model + " -o again.safetensors", "again.safetensors", "again.safetensors", "again.safetensors"},
		{"ckpt export w.safetensors -o hf", "hf/config.json", "hf", "hf/config.json"},
		{"profile run.toml --steps 1 -o new.json", "new.json", "new.json", "new.json"},
		{"report " + run + " -o page.html", "page.html", "page.html", "page.html"},
		{"simulate run.toml --costs costs.json --trace t.json", "t.json", "t.json", "t.json"},
		{"plan run.toml --costs costs.json --csv s.csv", "s.csv", "s.csv", "s.csv"},
		{"bench node --judge records --page node.html", "node.html", "node.html", "node.html"},
		{"bench node --judge records --write-reference ref.toml", "ref.toml", "ref.toml", "ref.toml"},
		{"bench node --small --seconds 0.001 --threads 1 --records again", "again/" + nodeName() + ".0.jsonl", "again/" + nodeName() + ".0.jsonl", "again/" + nodeName() + ".0.jsonl"},
	} {
		args := strings.Fields(c.args)
		write(t, c.lies, "old")
		if e := says(args...); e.status != exitUsage || e.stderr != "dynmo: "+c.named+" exists: --force writes over it\n" {
			t.Errorf("%s: %+v", c.args, e)
		}
		if _, err := os.Stat(c.made); read(t, c.lies) != "old" || c.made != c.lies && err == nil {
			t.Errorf("%s: refused, and has written", c.args)
		}
		if e := says(append(args, "--force")...); e.status != exitDone {
			t.Errorf("%s --force: %+v", c.args, e)
		}
		if read(t, c.made) == "old" {
			t.Errorf("%s: --force leaves %s as it was", c.args, c.made)
		}
	}
	said(t, "ckpt", "import", "hf", "-o", "back.safetensors")
	if _, err := os.Stat("i.idx"); err == nil {
		t.Error("the index of another token file lies beside i.bin")
	}
	if left, _ := filepath.Glob(".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestTargetsOfAnotherKind: a path that cannot become a file or directory is refused, even with
// --force. Standard output and devices are accepted.
func TestTargetsOfAnotherKind(t *testing.T) {
	run := recorded(t, record.Metrics{Clock: "wall", Loss: 5.5, StepSeconds: 1})
	model := hfModel(t, 5, 3, 4, true)
	t.Chdir(t.TempDir())
	expect.OK(t, os.Mkdir("dir", 0o777))
	write(t, "file", "")
	want := said(t, "ckpt", "import", model, "-o", "-")
	write(t, "w", want)
	expect.OK(t, os.Mkdir("empty", 0o777)) // an empty directory: nothing is overwritten
	said(t, "ckpt", "export", "w", "-o", "empty")
	for _, c := range []struct{ args, want string }{
		{"report " + run + " -o dir", "--output: dir: a directory, want a file"},
		{"report " + run + " --output=", "--output: want the name of a file"},
		{"ckpt export w -o file", "--output: file: a file, want a directory"},
		{"ckpt export w -o -", `--output "-": want the name of a directory`},
		{"data prepare file -o -", "-: want a name that ends in .bin"},
		{"ckpt export w -o d\xff", `--output d\xff: not UTF-8, want another name`},
		{"report " + run + " -o p\xff", `--output p\xff: not UTF-8, want another name`},
		{"train file --run-dir r\xff", `--run-dir r\xff: not UTF-8, want another name`},
	} {
		says(append(strings.Fields(c.args), "--force")...).refused(t, exitUsage, c.want)
	}
	for _, path := range []string{"-", "/dev/stdout"} {
		if got := said(t, "ckpt", "import", model, "-o", path); got != want {
			t.Errorf("%s: %d bytes, want %d", path, len(got), len(want))
		}
	}
	said(t, "report", run, "-o", os.DevNull)
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("%s is a file now", os.DevNull)
	}
	says("report", run, "-o", "/dev/full").refused(t, exitFailure, "--output: write /dev/full: no space left on device")
}
