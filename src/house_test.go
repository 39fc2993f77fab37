package src_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// order is the house: a package imports packages of earlier lines, or to its
// left on its own line. A package inside another (kernel/ref in kernel) stands
// where the outer one stands; the two may import each other's kin freely. Where
// the order names the inner packages (plan/search), it holds for them too.
var order = [][]string{
	{"expect", "fault", "random", "files", "partition", "piece", "cost", "tensor", "trace", "config"},
	{"device", "kernel", "comm"},
	{"data", "model", "dynamic", "kind", "schedule", "layout", "pipeline", "profile", "sim", "balance", "plan", "plan/plantest", "plan/search", "plan/policy", "migrate", "elastic"},
	{"record", "weights", "checkpoint", "sample", "train", "launch"},
	readers,
	{"cmd"},
}

// readers are the rooms that read what runs have recorded, or answer questions without a run. They
// stand behind the engine, which is what train and launch import: so the engine imports no reader.
// Tests of the engine may import readers, to hold answers against runs.
var readers = []string{"tokenizer", "lab/verdict", "lab/study", "lab/report", "lab/roofline", "lab/modelcost", "lab/layouts", "lab/trainerlogs", "lab/figures", "nodebench"}

// registry is the package that registers families and kinds of dynamism. Tests of any package
// may import it, so that settings have the tables of every one.
const registry = module + "/kind"

// boundaries is the line of order that tests of any package may import too:
// its backends and conformance suites are what tests run on.
const boundaries = 1

// cgo lists the only packages that may import "C".
var cgo = []string{"kernel/cpu", "kernel/cuda", "device/cuda", "device/cuda/cudatest", "comm/mpi", "comm/nccl"}

// unnamed lists package names that say nothing about what a package is for.
var unnamed = []string{"util", "utils", "common", "core", "base", "types", "helpers"}

// maxLines bounds a file that is not a test.
const maxLines = 400

// module is the import path of the folder src.
const module = "dynmo/src"

// violation is one broken rule at one line of a file.
type violation struct {
	file string
	line int
	rule string
}

func (v violation) String() string { return fmt.Sprintf("%s:%d: %s", v.file, v.line, v.rule) }

// house reads the Go files under src, whatever their build tags, and the C
// files under src and csrc, and collects the rules they break.
type house struct {
	fsys       fs.FS
	fset       *token.FileSet
	violations []violation
}

// inspect returns every violation in the repository whose root is fsys.
func inspect(fsys fs.FS) ([]violation, error) {
	h := &house{fsys: fsys, fset: token.NewFileSet()}
	for _, top := range []string{"src", "csrc"} {
		err := fs.WalkDir(fsys, top, func(file string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return fs.SkipDir
			case entry.IsDir():
				return nil
			}
			return h.file(file)
		})
		if err != nil {
			return nil, err
		}
	}
	return h.violations, nil
}

func (h *house) add(file string, line int, format string, args ...any) {
	h.violations = append(h.violations, violation{file, line, fmt.Sprintf(format, args...)})
}

func (h *house) file(file string) error {
	text, err := fs.ReadFile(h.fsys, file)
	if err != nil {
		return err
	}
	lines := strings.Count(string(text), "\n")
	switch path.Ext(file) {
	case ".go":
		if err := h.goFile(file, text); err != nil {
			return err
		}
	case ".c", ".h", ".cu", ".cuh":
	default:
		return nil
	}
	if lines > maxLines && !strings.HasSuffix(file, "_test.go") {
		h.add(file, lines, "%d lines: at most %d, or cut it in two", lines, maxLines)
	}
	return nil
}

func (h *house) goFile(file string, text []byte) error {
	f, err := parser.ParseFile(h.fset, file, text, 0)
	if err != nil {
		return err
	}
	dir, test := path.Dir(file), strings.HasSuffix(file, "_test.go")
	if slices.Contains(unnamed, strings.TrimSuffix(f.Name.Name, "_test")) {
		h.add(file, h.line(f.Name), "package %s: the name does not state a purpose", f.Name.Name)
	}
	h.imports(file, f, test)
	if test {
		return nil
	}
	if room(dir) != "cmd" {
		h.prints(file, f)
	}
	return nil
}

// room returns the package of order that a folder or an import path belongs to. It is "" for src
// itself, whose tests look at the whole house.
func room(dir string) string {
	dir = strings.TrimPrefix(strings.TrimPrefix(dir, "dynmo/"), "src")
	dir = strings.TrimPrefix(dir, "/")
	if _, _, known := place(dir); known {
		return dir
	}
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// place returns where a room stands in order.
func place(room string) (line, column int, known bool) {
	for line, rooms := range order {
		if column := slices.Index(rooms, room); column >= 0 {
			return line, column, true
		}
	}
	return 0, 0, false
}

func (h *house) imports(file string, f *ast.File, test bool) {
	from := room(path.Dir(file))
	if from == "" && test {
		return
	}
	line, column, known := place(from)
	if !known {
		h.add(file, h.line(f.Name), "package %q has no place in the order of the house", from)
		return
	}
	for _, spec := range f.Imports {
		name, _ := strconv.Unquote(spec.Path.Value) // the parser has checked the quotes
		if name == "C" && !slices.Contains(cgo, strings.TrimPrefix(path.Dir(file), "src/")) {
			h.add(file, h.line(spec), `import "C" outside of %s`, strings.Join(cgo, ", "))
		}
		if name != module && !strings.HasPrefix(name, module+"/") {
			continue
		}
		to := room(name)
		l, c, known := place(to)
		switch {
		case !known:
			h.add(file, h.line(spec), "imports %s, which has no place in the order of the house", name)
		case from == "kind" && to == "kind" && path.Dir(file) != "src/kind" && !strings.HasPrefix(name+"/", path.Join("dynmo", kindFolder(file))+"/") && !test:
			h.add(file, h.line(spec), "a kind imports %s: what two kinds share is below them", strings.TrimPrefix(name, module+"/"))
		case to == from, l < line, l == line && c < column, test && (l == boundaries || name == registry || slices.Contains(readers, to)):
		default:
			h.add(file, h.line(spec), "%s imports %s: imports go to earlier lines of the house, or to the left", from, to)
		}
	}
}

// exits lists what only cmd may call, by import path and function.
var exits = map[string]*regexp.Regexp{
	"fmt": regexp.MustCompile(`^Print(f|ln)?$`),
	"log": regexp.MustCompile(`^(Print|Fatal|Panic)(f|ln)?$`),
	"os":  regexp.MustCompile(`^Exit$`),
}

// prints finds the calls by which a package would print or end the program.
// The Abort of a transport may exit: it is how cmd ends every rank.
func (h *house) prints(file string, f *ast.File) {
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		abort := ok && fn.Name.Name == "Abort" && room(path.Dir(file)) == "comm"
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if name, ok := n.Fun.(*ast.Ident); ok && (name.Name == "print" || name.Name == "println") {
					h.add(file, h.line(n), "%s outside of cmd: only cmd prints and exits", name.Name)
				}
			case *ast.SelectorExpr:
				pkg, ok := n.X.(*ast.Ident)
				if ok && exits[pkg.Name] != nil && exits[pkg.Name].MatchString(n.Sel.Name) && !(abort && pkg.Name == "os") {
					h.add(file, h.line(n), "%s.%s outside of cmd: only cmd prints and exits", pkg.Name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

func (h *house) line(n ast.Node) int { return h.fset.Position(n.Pos()).Line }

// kindFolder returns the folder of the kind that a file of src/kind belongs to.
func kindFolder(file string) string {
	parts := strings.Split(path.Dir(file), "/")
	return path.Join(parts[:min(len(parts), 3)]...)
}
