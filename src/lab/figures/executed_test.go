package figures

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// TestExecuted: executed runs become a panel of the figure that their name begins with. The fastest
// static run is compared with the fastest whose layers move, kind by kind. A wrong file is named,
// and the figure is drawn with the others.
func TestExecuted(t *testing.T) {
	results := t.TempDir()
	f := sample()
	f.Name = "fig3"
	expect.OK(t, f.Write(results))
	expect.OK(t, os.Mkdir(filepath.Join(results, "executed"), 0o777))
	keep := func(name, text string) {
		expect.OK(t, os.WriteFile(filepath.Join(results, "executed", name+".json"), []byte(text), 0o600))
	}
	keep("fig3-8-ranks", `{"format":1,"name":"fig3-8-ranks","clock":"virtual","command":"a script","origin":"revision x","runs":[
{"kind":"prune","balancer":"uniform","measured":4,"predicted":4.5},
{"kind":"prune","balancer":"param","measured":3,"predicted":3.5},
{"kind":"prune","balancer":"partition by time","moves":true,"measured":2,"predicted":2},
{"kind":"mod","balancer":"uniform","measured":3,"predicted":3}]}`)
	keep("fig3-wrong", `{"format":1,"name":"fig3-wrong","runs":[{"kind":"prune","measured":0,"predicted":1}]}`)
	keep("fig8-other", `{`)
	f, err := Read(results, results, "fig3")
	if err == nil || !strings.Contains(err.Error(), `fig3-wrong.json: runs[0]: kind "prune", measured 0, predicted 1, want a kind and seconds above 0`) {
		t.Errorf("error %v", err)
	}
	var b strings.Builder
	for line := range strings.Lines(f.markdown()) {
		if strings.Contains(line, "ecuted") || strings.HasPrefix(line, "| prune") || strings.HasPrefix(line, "| mod") {
			b.WriteString(line)
		}
	}
	expect.Golden(t, "testdata/executed.md", b.String())
	expect.OK(t, f.Save(t.TempDir()))
}
