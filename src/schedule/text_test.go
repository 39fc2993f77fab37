package schedule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/expect"
	"dynmo/src/partition"
)

func TestParseReadsLines(t *testing.T) {
	for _, kind := range []Kind{KindGPipe, KindZBH2, KindZBV} {
		chunks := 1
		if kind == KindZBV {
			chunks = 2
		}
		want, err := New(kind, 3, chunks, 6)
		expect.OK(t, err)
		got, err := Parse(kind, want.Map, 6, want.Lines())
		expect.OK(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"unknown op", "F0 X0", `stage 0: "X0": want F, B, I or W`},
		{"no number", "F0 B", `"B": want an op, a microbatch`},
		{"illegal", "F0", "microbatch 0 is not finished"},
		{"unknown chunk", "F0.1 B0.1", "a stage has 1 chunks"},
		{"negative", "F-1", "there are 1 microbatches"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(KindList, partition.Line(1), 1, []string{c.line})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want …%s…", err, c.want)
			}
		})
	}
}
