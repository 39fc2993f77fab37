package balance

import (
	"strings"
	"testing"

	"dynmo/src/expect"
)

func TestParseLoads(t *testing.T) {
	p, err := ParseLoads("f.json", []byte(`{"seconds":[1,2.5,3],"bytes":[1,2,3],"capacity_bytes":9,"fixed_seconds":[0,0.5]}`), 2)
	expect.OK(t, err)
	if p.Stages != 2 || p.Seconds[1] != 2.5 || p.StaticBytes[2] != 3 || p.Capacity[1] != 9 || p.Fixed[1] != 0.5 {
		t.Errorf("got %+v", p)
	}
	for _, tc := range []struct {
		data   string
		stages int
		want   string // behind the file's name
	}{
		{`{"seconds":[1,NaN]}`, 1, "seconds: "},
		{`{"seconds":[1,-2]}`, 1, "seconds[1]: -2"},
		{`{"seconds":[1,1e999]}`, 1, "seconds: "},
		{`{"seconds":[1,1e300]}`, 1, "seconds[1]: 1e+300, want at most 1e+06"},
		{`{"seconds":[1],"fixed_seconds":[1e300]}`, 1, "fixed_seconds[0]: 1e+300, want at most 1e+06"},
		{`{"seconds":[1],"Bytes":[1]}`, 1, "Bytes: unknown key; the nearest is bytes"},
		{`{"seconds":[1,null]}`, 1, "seconds[1]: null"},
		{`{"seconds":null}`, 1, "seconds: "},
		{`{"seconds":[]}`, 1, "seconds: "},
		{`{"seconds":"1"}`, 1, "seconds: "},
		{`{}`, 1, "seconds: missing"},
		{`{"seconds":[1],"bytes":[1,2]}`, 1, "bytes: 2 entries, want 1"},
		{`{"seconds":[1],"bytes":[1.5]}`, 1, "bytes: "},
		{`{"seconds":[1],"bytes":[-1]}`, 1, "bytes[0]: -1"},
		{`{"seconds":[1,1],"bytes":[9007199254740992,1]}`, 1, "bytes: "},
		{`{"seconds":[1],"capacity_bytes":-1}`, 1, "capacity_bytes[0]: -1"},
		{`{"seconds":[1],"capacity_bytes":null}`, 1, "capacity_bytes: null"},
		{`{"seconds":[1],"fixed_seconds":[1,1]}`, 1, "fixed_seconds: 2 entries, want 1"},
		{`{"seconds":[1],"fixed_seconds":[-1]}`, 1, "fixed_seconds[0]: -1"},
		{`{"seconds":[1],"weights":[1]}`, 1, "weights: unknown key; the nearest is seconds"},
		{`{"seconds":[1],"seconds":[2]}`, 1, "seconds: stands twice"},
		{`{"seconds":[1]} {}`, 1, "byte "},
		{`{"seconds":[1]`, 1, "byte "},
		{`[1]`, 1, "want a JSON object"},
		{``, 1, "want a JSON object"},
		{`{"seconds":[1]}`, 0, "stages: 0"},
		{`{"seconds":[1],"capacity_bytes":5}`, 1 << 40, "stages: "},
	} {
		if _, err := ParseLoads("f.json", []byte(tc.data), tc.stages); err == nil || !strings.HasPrefix(err.Error(), "f.json: "+tc.want) {
			t.Errorf("%s: error %v, want one that begins with %q", tc.data, err, "f.json: "+tc.want)
		}
	}
}

// FuzzParseLoads wants every file that is accepted to be one that all
// balancers can work on without panic, and the optimum to hold.
func FuzzParseLoads(f *testing.F) {
	f.Add([]byte(`{"seconds":[1,4,2,2]}`), 3)
	f.Add([]byte(`{"seconds":[1,2],"bytes":[1,2],"capacity_bytes":2,"fixed_seconds":[0,0.5]}`), 2)
	f.Add([]byte(`{"seconds":[0,1e-320,1e5]}`), 2)
	f.Add([]byte(`{"seconds":[1],"weights":null}`), 1)
	f.Fuzz(func(t *testing.T, data []byte, stages int) {
		if stages > 64 || len(data) > 4096 {
			return
		}
		p, err := ParseLoads("f", data, stages)
		if err != nil {
			return
		}
		best, err := Partition(p)
		if err != nil {
			return // too little memory
		}
		free := p
		free.Capacity = nil
		start, err := Uniform(free)
		expect.OK(t, err)
		if r, _, err := Diffusion(p, start.Cuts, DiffusionOptions{MaxRounds: 100}); err == nil && r.Bottleneck < best.Bottleneck {
			t.Fatalf("diffusion's %v is better than the optimum %v", r.Bottleneck, best.Bottleneck)
		}
		if _, err := DiffusionPaper(p, start.Cuts, 100); err != nil {
			t.Fatal(err)
		}
	})
}
