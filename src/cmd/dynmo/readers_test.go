package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/record"
)

// badFiles changes to a new folder with settings, costs, a run directory and files that every
// reader must refuse.
func badFiles(t *testing.T) {
	t.Helper()
	dir := folder(t, "")
	costs, err := os.ReadFile(filepath.Join(home, "testdata", "costs.json"))
	expect.OK(t, err)
	t.Chdir(dir)
	for name, text := range map[string]string{
		"costs.json":    string(costs),
		"key.json":      strings.Replace(string(costs), `"forward"`, `"forwards"`, 1),
		"twice.json":    strings.Replace(string(costs), `"clock"`, `"step": 1, "step": 2, "clock"`, 1),
		"endless.json":  strings.Replace(string(costs), `0.0002`, `1e200`, 1),
		"deep.toml":     "[model]\nhidden = " + strings.Repeat("[", 6000),
		"far.toml":      "[node]\nlatency_seconds = 3600\nbandwidth_bytes = 1e9\n",
		"loads.json":    `{"seconds": [1, 2], "secondz": [1]}`,
		"deep.json":     `{"seconds": ` + strings.Repeat("[", 20000),
		"key\x1b[2J":    "x = 1",
		"u\u202egpj.md": "[run]\nnam = \"x\"\n",
	} {
		write(t, name, text)
	}
	expect.OK(t, syscall.Mkfifo("fifo", 0o666))
	expect.OK(t, os.Symlink("fifo", "fifo.bin"))
	write(t, "huge", "")
	expect.OK(t, os.Truncate("huge", 1<<40)) // sparse
	expect.OK(t, os.Mkdir("hf", 0o777))
	expect.OK(t, os.Symlink("../fifo", "hf/config.json"))
	expect.OK(t, os.CopyFS("runs/first", os.DirFS(recorded(t, record.Metrics{Clock: "wall", Loss: 5.5, StepSeconds: 1}))))
	for name, file := range map[string]string{"run-metrics": record.MetricsFile, "run-settings": record.SettingsFile} {
		expect.OK(t, os.CopyFS(name, os.DirFS(recorded(t, record.Metrics{Clock: "wall", Loss: 5.5, StepSeconds: 1}))))
		expect.OK(t, os.Remove(filepath.Join(name, file)))
		expect.OK(t, os.Symlink("../fifo", filepath.Join(name, file)))
	}
}

// TestBadFiles: files of a wrong kind, size, depth or content are refused by every command that
// reads such files. The whole message is compared.
func TestBadFiles(t *testing.T) {
	badFiles(t)
	whatIf := []string{"run.toml", "--costs", "costs.json"}
	const fifo, device, huge = "a FIFO, want a regular file", "a device, want a regular file", "1099511627776 bytes, want at most "
	for _, c := range []struct{ args, want string }{
		{"plan fifo --costs costs.json", "config: fifo: " + fifo},
		{"train fifo", "config: fifo: " + fifo},
		{"train hf", "config: hf: a directory, want a regular file"},
		{"train huge", "config: huge: " + huge + "262144"},
		{"train deep.toml", "deep.toml:2: tables or lists more than 16 deep in each other, want settings"},
		{"train key\x1b[2J", `key\x1b[2J:1: x = 1: key outside any table; the nearest is moe.z`},
		{"train u\u202egpj.md", `u\u202egpj.md:2: run.nam: unknown key; the nearest is run.name`},
		{"plan run.toml --costs fifo", "--costs: fifo: " + fifo},
		{"simulate run.toml --costs /dev/zero", "--costs: /dev/zero: " + device},
		{"simulate run.toml --costs huge", `--costs: huge: table 0: invalid character '\x00' looking for beginning of value: want a file of dynmo profile or dynmo costs, or costs.jsonl of a run`},
		{"plan run.toml --costs /proc/self/status", "--costs: /proc/self/status: a file that the kernel makes up, want a regular file of a disk"},
		{"plan run.toml --costs run.toml", "--costs: run.toml: table 0: invalid character 'r' looking for beginning of value: want a file of dynmo profile or dynmo costs, or costs.jsonl of a run"},
		{"table hf", "hf: no run lies there (config.toml is missing), want a directory that dynmo train CONFIG --run-dir DIR has filled"},
		{"table runs", "runs: a directory of runs, want one of the 1 in it, as runs/first"},
		{"simulate run.toml --costs key.json", "--costs: key.json: table 0: layers[0].forwards: unknown key; the nearest is forward"},
		{"simulate run.toml --costs twice.json", "--costs: twice.json: table 0: step: stands twice"},
		{"simulate run.toml --costs endless.json", "--costs: endless.json: table 0: layers[0].forward: 1e+200, want at most 1e+06"},
		{"plan * --network fifo", "--network: fifo: " + fifo},
		{"plan * --network huge", "--network: huge: " + huge + "1048576"},
		{"plan * --network deep.toml", "--network: deep.toml:2: tables or lists more than 16 deep in each other, want settings"},
		{"plan * --network far.toml", "--network: far.toml: node.latency_seconds: 3600, wanted a number from 0 to 10"},
		{"plan * --set schedule.kind=file --set schedule.file=fifo", "schedule.file: fifo: " + fifo},
		{"plan * --set schedule.kind=file --set schedule.file=huge", "schedule.file: huge: " + huge + "16777216"},
		{"balance --stages 2 --loads fifo", "--loads: fifo: " + fifo},
		{"balance --stages 2 --loads huge", "--loads: huge: " + huge + "16777216"},
		{"balance --stages 2 --loads loads.json", "loads.json: secondz: unknown key; the nearest is seconds"},
		{"balance --stages 2 --loads deep.json", "deep.json: seconds: exceeded max depth"},
		{"table run-metrics", "run-metrics/metrics.jsonl: " + fifo},
		{"table run-settings", "config: run-settings/config.toml: " + fifo},
		{"report run-metrics -o page.html", "run-metrics/metrics.jsonl: " + fifo},
		{"ckpt inspect fifo", "fifo: " + fifo},
		{"ckpt verify /dev/null", "/dev/null: " + device},
		{"ckpt import fifo -o out", "fifo: a file, want a Hugging Face directory: config.json with model.safetensors"},
		{"ckpt import hf -o out", "hf/config.json: " + fifo},
		{"ckpt export fifo -o out", "fifo: " + fifo},
		{"data inspect fifo.bin", "fifo.bin: " + fifo},
		{"data prepare -o out.bin --tokenizer sentencepiece --tokenizer-model fifo run.toml", "fifo: " + fifo},
		{"data prepare -o out.bin --tokenizer sentencepiece --tokenizer-model huge run.toml", "huge: " + huge + "33554432"},
		{"data prepare -o out.bin fifo", "fifo: " + fifo},
		{"train run.toml --set data.path=fifo.bin", `data: data.path = "fifo.bin": ` + fifo},
		{"train run.toml --set data.path=huge", `data: data.path = "huge": 1099511627776 bytes of text, wanted at most 17179869184 (data.limit_bytes), or a token file of them (dynmo data prepare)`},
	} {
		t.Run(c.args, func(t *testing.T) {
			var args []string
			for word := range strings.SplitSeq(c.args, " ") {
				if word == "*" {
					args = append(args, whatIf...)
				} else {
					args = append(args, word)
				}
			}
			e := says(args...)
			got := strings.Replace(e.stderr, "invalid character '[' exceeded", "exceeded", 1) // encoding/json before Go 1.27
			if want := "dynmo: " + c.want + "\n"; got != want || e.status != exitUsage || e.stdout != "" {
				t.Errorf("status %d\ngot  %q\nwant %q", e.status, e.stderr, want)
			}
			if left, _ := filepath.Glob("out*"); left != nil {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestTornFiles: table and simulate read the files of a killed run up to the last complete line,
// and say so.
func TestTornFiles(t *testing.T) {
	badFiles(t)
	dir := recorded(t, record.Metrics{Clock: "wall", Loss: 5.5, StepSeconds: 1})
	path := filepath.Join(dir, record.MetricsFile)
	whole := read(t, path)
	for _, tail := range []string{`{"step":1,"lo`, "\x00\x00\x00", "{\"step\":1\x00\x00\n"} {
		write(t, path, whole+tail)
		e := says("table", dir)
		if want := "note: " + path + ":2: the last line is torn and left out\n"; e.status != exitDone || e.stderr != want || !strings.Contains(e.stdout, "5.5") {
			t.Errorf("%q: status %d, %q, want %q\n%s", tail, e.status, e.stderr, want, e.stdout)
		}
	}
	write(t, path, "{\"st\n"+whole)
	says("table", dir).refused(t, exitUsage, path+":1: invalid character")

	line := strings.Join(strings.Fields(read(t, "costs.json")), " ")
	write(t, "costs.jsonl", line+"\n"+line[:100])
	e := says("simulate", "run.toml", "--costs", "costs.jsonl")
	if want := "note: costs.jsonl:2: the last line is torn and left out\n"; e.status != exitDone || e.stderr != want {
		t.Errorf("status %d, %q, want %q", e.status, e.stderr, want)
	}
}

// TestNamesNeverReachATerminal: control characters, and characters that reverse the direction of
// writing, are escaped in answers and tables.
func TestNamesNeverReachATerminal(t *testing.T) {
	badFiles(t)
	dir := recorded(t, record.Metrics{Clock: "wall", Loss: 5.5, StepSeconds: 1})
	settings := filepath.Join(dir, record.SettingsFile)
	write(t, settings, strings.Replace(read(t, settings), `name = "run"`, `name = "a\u001b[2Jb\u202ec"`, 1))
	table := said(t, "table", dir)
	write(t, "named.json", strings.Replace(read(t, "costs.json"), `"name": "`, `"name": "\u001b]0;\u0007`, 1))
	answer := said(t, "plan", "run.toml", "--costs", "named.json")
	said(t, "report", dir, "-o", "page.html")
	for what, text := range map[string]string{"table": table, "plan": answer, "page": read(t, "page.html")} {
		if strings.ContainsAny(text, "\x1b\a\u202e") {
			t.Errorf("%s: %q", what, text)
		}
	}
	if !strings.Contains(table, `a\x1b[2Jb\u202ec`) {
		t.Errorf("no name in %q", table)
	}
}
