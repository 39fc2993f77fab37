package prune

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// TestResolvePruning: csr_from = auto becomes a number, which the settings then record,
// with the reason, that of the run which goes on where there is one; what is set stays, and so
// do settings without pruning.
func TestResolvePruning(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spmm.json")
	expect.OK(t, os.WriteFile(file, []byte(`{"name":"spmm/forward_70","value":2,"unit":"ratio"}
{"name":"spmm/crossing","value":43,"wrong":0,"unit":"% zeros","cpu":"A CPU"}
{"name":"gpu/spmm_crossing_bf16","value":100,"wrong":0,"unit":"% zeros","cpu":"A CPU","device":"A GPU"}
{"name":"gpu/spmm_crossing_f32","value":0,"wrong":3,"unit":"% zeros"}
`), 0o600))
	run := filepath.Join(t.TempDir(), "config.toml")
	began, err := config.Load("", []string{"dynamic.kind=prune", "prune.csr_from=0.6"})
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(run, []byte(began.TOML()), 0o600))
	for _, c := range []struct{ sets, recorded, want, why, err string }{
		{"dynamic.kind=none", "", "auto", "", ""},
		{"dynamic.kind=prune", "", "0.7", "from 70 % of zeros on", ""},
		{"dynamic.kind=prune prune.csr_from=0.1", "", "0.1", "", ""},
		{"dynamic.kind=prune prune.start=50 train.steps=50", "", "0.7", "", ""}, // nothing is pruned
		{"dynamic.kind=prune prune.final=0", "", "0.7", "", ""},
		{"dynamic.kind=prune prune.structure=2:4 prune.final=0.5", "", "auto", "stay masked dense", ""},
		{"dynamic.kind=prune device.kind=cuda device.precision=f32", "", "0.9", "measured", ""},
		{"dynamic.kind=prune device.cpu_precision=bf16", "", "0.8", "from 80 % of zeros on: faster for bf16 on cpu (estimated)", ""},
		{"dynamic.kind=prune device.cpu_precision=bf16-emulated", "", "0.7", "faster for f32", ""},
		{"dynamic.kind=prune device.cpu_precision=bf16 prune.crossing=" + file, "", "auto", "", "set prune.csr_from"},
		{"dynamic.kind=prune+freeze freeze.when=step device.kind=cuda", "", "1", "stay masked dense: faster for bf16", ""},
		{"dynamic.kind=prune prune.crossing=" + file, "", "0.43", "measured on A CPU", ""},
		{"dynamic.kind=prune device.kind=cuda prune.crossing=" + file, "", "1", "measured on A GPU", ""},
		{"dynamic.kind=prune device.kind=cuda device.precision=f32 prune.crossing=" + file, "", "auto", "", "3 wrong elements"},
		{"dynamic.kind=prune prune.structure=block32 model.hidden=64 prune.crossing=" + file, "", "auto", "", "no figure spmm_block32/crossing"},
		{"dynamic.kind=prune prune.structure=block32 model.hidden=64", "", "0.4", "measured", ""},
		{"dynamic.kind=prune prune.structure=block32 model.hidden=64 device.kind=cuda", "", "0.8", "estimated", ""},
		{"dynamic.kind=prune prune.structure=block32 model.hidden=64 device.kind=cuda prune.crossing=" + file, "", "auto", "", "no figure gpu/spmm_block32_crossing_bf16"},
		{"dynamic.kind=prune prune.crossing=" + file + ".not", "", "auto", "", "prune.crossing: "},
		{"dynamic.kind=prune prune.crossing=" + file, run, "0.6", "stored as this run began", ""},
		{"dynamic.kind=prune device.kind=cuda", run, "0.6", "stored as this run began", ""},
		{"dynamic.kind=prune prune.csr_from=0.8", run, "0.8", "", ""},
		{"dynamic.kind=prune", run + ".not", "0.7", "from 70 % of zeros on", ""},
	} {
		got, err := config.Load("", append([]string{"prune.start=0"}, strings.Fields(c.sets)...))
		expect.OK(t, err)
		reasons, err := got.Resolve(c.recorded)
		why, p := strings.Join(reasons, "; "), config.Of[options](got)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", c.sets, err, c.err)
		}
		if len(why) > 100 && !strings.Contains(why, file) {
			t.Errorf("%s: %q is longer than a line", c.sets, why)
		}
		if p.CSRFrom != c.want || !strings.Contains(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s: %s, %q; want %s, %q", c.sets, p.CSRFrom, why, c.want, c.why)
		}
		if err == nil && p.CSRFrom != "auto" && p.Crossing != "" {
			t.Errorf("%s: prune.crossing is left beside a number, without effect", c.sets)
		}
		if err == nil && p.CSRFrom == "1" && csrFrom(got) <= 1 {
			t.Errorf("%s: a matrix without entries is stored as CSR", c.sets)
		}
	}
}
