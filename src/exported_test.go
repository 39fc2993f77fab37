package src_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// exported is a package-level name, and what its declaration exports besides: names of types.
type exported struct {
	file  string
	needs []string
}

// TestExported: every exported name is used by another package, or stands in what such a name
// exports: a parameter, a result, an exported field or method.
func TestExported(t *testing.T) {
	h := newTracked(t)
	names, used := map[string]*exported{}, map[string]bool{}
	for file, text := range h.files {
		if !strings.HasPrefix(file, "src/") || !strings.HasSuffix(file, ".go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		expect.OK(t, err)
		dir := path.Dir(file)
		if isNoTest(file) && f.Name.Name != "main" {
			declared(names, dir, file, f)
		}
		packages := map[string]string{}
		for _, i := range f.Imports {
			if to, inside := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module); inside {
				name := path.Base(to)
				if i.Name != nil {
					name = i.Name.Name
				}
				packages[name] = "src" + to
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, is := n.(*ast.SelectorExpr); is {
				if x, is := s.X.(*ast.Ident); is && packages[x.Name] != "" && packages[x.Name] != dir {
					used[packages[x.Name]+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	for more := true; more; {
		more = false
		for name, e := range names {
			if !used[name] {
				continue
			}
			for _, n := range e.needs {
				if names[n] != nil && !used[n] {
					used[n], more = true, true
				}
			}
		}
	}
	for name, e := range names {
		if !used[name] {
			t.Errorf("%s: %s: nothing outside of its package uses it", e.file, name)
		}
	}
}

// declared adds the exported names of a file, and to a type what its methods export.
func declared(names map[string]*exported, dir, file string, f *ast.File) {
	add := func(name *ast.Ident, means ast.Node) {
		if !name.IsExported() {
			return
		}
		e := names[dir+"."+name.Name]
		if e == nil {
			e = &exported{file: file}
			names[dir+"."+name.Name] = e
		}
		for _, n := range exports(means) {
			e.needs = append(e.needs, dir+"."+n)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name, d.Type)
			} else if id := receiver(d.Recv.List[0].Type); d.Name.IsExported() && id != nil {
				add(id, d.Type)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Name, s.Type)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						add(n, s.Type)
						for _, x := range s.Values {
							add(n, x)
						}
					}
				}
			}
		}
	}
}

// receiver returns the name of a receiver's type.
func receiver(x ast.Expr) *ast.Ident {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x
	}
	return nil
}

// exports returns the exported names that a type or a value mentions. Unexported fields are left
// out.
func exports(n ast.Node) (list []string) {
	if n == nil {
		return nil
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, f := range n.Fields.List {
				if len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
					list = append(list, exports(f.Type)...)
				}
			}
			return false
		case *ast.SelectorExpr:
			return false
		case *ast.Ident:
			if n.IsExported() {
				list = append(list, n.Name)
			}
		}
		return true
	})
	return list
}

// tracked is the text of the files that the repository has, by path.
type tracked struct {
	files map[string][]byte
}

func newTracked(t *testing.T) *tracked {
	list, err := exec.Command("git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("no git, or no clone:", err)
	}
	h := &tracked{make(map[string][]byte)}
	for file := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(path.Join("..", file))
		if err == nil { // a file that is deleted and not yet committed is not there
			h.files[file] = text
		}
	}
	return h
}

func isNoTest(file string) bool { return !strings.HasSuffix(file, "_test.go") }
