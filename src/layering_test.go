package src_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"dynmo/src/expect"
)

func TestLayering(t *testing.T) {
	violations, err := inspect(os.DirFS(".."))
	expect.OK(t, err)
	for _, v := range violations {
		t.Error(v)
	}
}

// TestDrawing: the drawing of the house in src/README.md has the rooms in their order.
func TestDrawing(t *testing.T) {
	text, err := os.ReadFile("README.md")
	expect.OK(t, err)
	_, drawing, _ := strings.Cut(string(text), "\n\n    ")
	drawing, _, _ = strings.Cut(drawing, "\n\n")
	names := strings.Fields(strings.NewReplacer("->", " ", "cmd/dynmo", "cmd").Replace(drawing))
	names = slices.DeleteFunc(names, func(name string) bool { return strings.Contains("vocabulary boundaries rooms ends readers", name) })
	if want := slices.DeleteFunc(slices.Concat(order...), func(room string) bool { return room == "plan/plantest" }); !slices.Equal(names, want) {
		t.Errorf("src/README.md draws\n%q, the order is\n%q", names, want)
	}
}

// TestLayeringRefuses gives the checker one broken rule at a time, beside the
// sound file that breaks none.
func TestLayeringRefuses(t *testing.T) {
	long := strings.Repeat("\n", maxLines)
	for _, test := range []struct {
		name string
		file string
		text string
		want string // the only violation, or "" for none
	}{
		{"sound", "src/random/a.go", "// Package random is sound.\npackage random\n", ""},
		{"to an earlier line", "src/model/a.go", "// Package model is one.\npackage model\nimport _ \"dynmo/src/tensor\"\n", ""},
		{"to the left", "src/model/a.go", "// Package model is one.\npackage model\nimport _ \"dynmo/src/data\"\n", ""},
		{"to the right", "src/data/a.go", "// Package data is one.\npackage data\n\nimport _ \"dynmo/src/model\"\n",
			"src/data/a.go:4: data imports model: imports go to earlier lines of the house, or to the left"},
		{"to a later line", "src/random/a.go", "// Package random is one.\npackage random\nimport _ \"dynmo/src/comm\"\n",
			"src/random/a.go:3: random imports comm: imports go to earlier lines of the house, or to the left"},
		{"under any build tag", "src/random/a.go", "//go:build mpi\n\n// Package random is one.\npackage random\nimport _ \"dynmo/src/comm/mpi\"\n",
			"src/random/a.go:5: random imports comm: imports go to earlier lines of the house, or to the left"},
		{"the engine imports no reader", "src/train/a.go", "// Package train is one.\npackage train\nimport _ \"dynmo/src/lab/verdict\"\n",
			"src/train/a.go:3: train imports lab/verdict: imports go to earlier lines of the house, or to the left"},
		{"tests of the engine read", "src/train/a_test.go", "package train\nimport _ \"dynmo/src/lab/verdict\"\n", ""},
		{"kin", "src/kernel/ref/a.go", "// Package ref is one.\npackage ref\nimport _ \"dynmo/src/kernel\"\n", ""},
		{"kin stand with their parent", "src/device/cpu/a.go", "// Package cpu is one.\npackage cpu\nimport _ \"dynmo/src/kernel\"\n",
			"src/device/cpu/a.go:3: device imports kernel: imports go to earlier lines of the house, or to the left"},
		{"to the left inside a room", "src/plan/policy/a.go", "// Package policy is one.\npackage policy\nimport _ \"dynmo/src/plan/search\"\n", ""},
		{"to the right inside a room", "src/plan/search/a.go", "// Package search is one.\npackage search\nimport _ \"dynmo/src/plan/policy\"\n",
			"src/plan/search/a.go:3: plan/search imports plan/policy: imports go to earlier lines of the house, or to the left"},
		{"tests run on backends", "src/device/a_test.go", "package device\nimport _ \"dynmo/src/comm/local\"\n", ""},
		{"tests keep the order of rooms", "src/data/a_test.go", "package data\nimport _ \"dynmo/src/train\"\n",
			"src/data/a_test.go:2: data imports train: imports go to earlier lines of the house, or to the left"},
		{"tests register kinds", "src/data/a_test.go", "package data_test\nimport _ \"dynmo/src/kind\"\n", ""},
		{"a kind has rooms of its own", "src/kind/moe/a.go", "// Package moe is one.\npackage moe\nimport _ \"dynmo/src/kind/moe/routing\"\n", ""},
		{"rooms of a kind share", "src/kind/moe/workload/a.go", "// Package workload is one.\npackage workload\nimport _ \"dynmo/src/kind/moe/routing\"\n", ""},
		{"a kind stands alone", "src/kind/exit/a.go", "// Package exit is one.\npackage exit\nimport _ \"dynmo/src/kind/mod\"\n",
			"src/kind/exit/a.go:3: a kind imports kind/mod: what two kinds share is below them"},
		{"kinds are registered together", "src/kind/a.go", "// Package kind is one.\npackage kind\nimport _ \"dynmo/src/kind/mod\"\n", ""},
		{"a stranger", "src/wing/a.go", "// Package wing is one.\npackage wing\n",
			`src/wing/a.go:2: package "wing" has no place in the order of the house`},
		{"imports a stranger", "src/train/a.go", "// Package train is one.\npackage train\nimport _ \"dynmo/src/wing\"\n",
			"src/train/a.go:3: imports dynmo/src/wing, which has no place in the order of the house"},
		{"C where it belongs", "src/comm/mpi/a.go", "// Package mpi is one.\npackage mpi\nimport \"C\"\n", ""},
		{"C elsewhere", "src/comm/local/a.go", "// Package local is one.\npackage local\nimport \"C\"\n",
			`src/comm/local/a.go:3: import "C" outside of kernel/cpu, kernel/cuda, device/cuda, device/cuda/cudatest, comm/mpi, comm/nccl`},
		{"prints", "src/random/a.go", "// Package random is one.\npackage random\nimport \"fmt\"\nfunc f() { fmt.Printf(\"\") }\n",
			"src/random/a.go:4: fmt.Printf outside of cmd: only cmd prints and exits"},
		{"formats", "src/random/a.go", "// Package random is one.\npackage random\nimport \"fmt\"\nvar s = fmt.Sprintln()\n", ""},
		{"prints with a builtin", "src/random/a.go", "// Package random is one.\npackage random\nfunc f() { println() }\n",
			"src/random/a.go:3: println outside of cmd: only cmd prints and exits"},
		{"fatal", "src/random/a.go", "// Package random is one.\npackage random\nimport \"log\"\nfunc f() { log.Fatalln() }\n",
			"src/random/a.go:4: log.Fatalln outside of cmd: only cmd prints and exits"},
		{"exits", "src/random/a.go", "// Package random is one.\npackage random\nimport \"os\"\nfunc f() { defer os.Exit(1) }\n",
			"src/random/a.go:4: os.Exit outside of cmd: only cmd prints and exits"},
		{"a transport aborts", "src/comm/mpi/a.go", "// Package mpi is one.\npackage mpi\nimport \"os\"\nfunc (t t) Abort() { os.Exit(1) }\n", ""},
		{"others do not", "src/train/a.go", "// Package train is one.\npackage train\nimport \"os\"\nfunc Abort() { os.Exit(1) }\n",
			"src/train/a.go:4: os.Exit outside of cmd: only cmd prints and exits"},
		{"cmd prints and exits", "src/cmd/dynmo/a.go", "// Dynmo trains.\npackage main\nimport \"os\"\nfunc main() { os.Exit(1) }\n", ""},
		{"says nothing", "src/model/util/a.go", "// Package util is one.\npackage util\n",
			"src/model/util/a.go:2: package util: the name does not state a purpose"},
		{"too long", "src/random/a.go", "// Package random is one.\npackage random\n" + long,
			"src/random/a.go:402: 402 lines: at most 400, or cut it in two"},
		{"a test may be long", "src/random/a_test.go", "package random\n" + long, ""},
		{"C too long", "csrc/cpu/a.c", "\n" + long, "csrc/cpu/a.c:401: 401 lines: at most 400, or cut it in two"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fsys := fstest.MapFS{
				"csrc/cpu/sound.c":  {},
				"src/cost/sound.go": {Data: []byte("// Package cost is sound.\npackage cost\n")},
				test.file:           {Data: []byte(test.text)},
			}
			violations, err := inspect(fsys)
			expect.OK(t, err)
			got := make([]string, len(violations))
			for i, v := range violations {
				got[i] = v.String()
			}
			if all := strings.Join(got, "\n"); all != test.want {
				t.Errorf("got %q, want %q", all, test.want)
			}
		})
	}
}
