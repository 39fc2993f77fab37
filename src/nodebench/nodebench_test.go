package nodebench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// small is a shape that the reference computes fast, with more rows than are sampled.
var small = Shape{N: 33, C: 20, O: 45}

// spoiled is the reference with one wrong element in an operand of some calls.
type spoiled struct{ kernel.Calls }

func (*spoiled) Name() string     { return "spoiled" }
func (*spoiled) Identity() string { return "spoiled" }

// newSpoiled returns a spoiled backend. places has the operand to spoil, by operation.
func newSpoiled(places map[kernel.Op]int) kernel.Backend {
	k := ref.New(tensor.F32)
	return &spoiled{kernel.NewCalls(tensor.F32, tensor.Host, false, func(s device.Stream, c *kernel.Call) {
		k.Run(s, *c)
		place, ok := places[c.Op]
		switch m := c.Mem[place]; {
		case !ok:
		case m.IsZero(): // RMSNorm has no mean and no bias
			tensor.Of[float32](c.Mem[0])[0]++
		case c.Op.Of().Operands[place].Kind.Type(tensor.F32) == tensor.F64:
			tensor.Of[float64](m)[0] += 0.1
		default:
			tensor.Of[float32](m)[0]++
		}
	})}
}

func measure(t *testing.T, k kernel.Backend) (results []Result, dev device.Device) {
	t.Helper()
	dev = devcpu.New(device.NewWall())
	gemm, err := Gemm(k, dev, []Shape{small}, Rounds{Count: 3})
	expect.OK(t, err)
	spmm, err := SpMM(k, dev, small, []int{0, 70, 95}, 1, Rounds{Count: 3})
	expect.OK(t, err)
	blocks, err := SpMM(k, dev, small, []int{50}, 32, Rounds{Count: 3})
	expect.OK(t, err)
	spmm = append(spmm, blocks...)
	return append(gemm, spmm...), dev
}

func TestFigures(t *testing.T) {
	results, dev := measure(t, ref.New(tensor.F32))
	if used := dev.Used(); used != 0 {
		t.Errorf("%d bytes were not freed", used)
	}
	var names []string
	for _, r := range results {
		names = append(names, r.Name)
		if r.Wrong != 0 || r.Value <= 0 || r.Clock != "wall" || r.OK != (r.Value >= r.Reach) {
			t.Errorf("%+v", r)
		}
	}
	want := "gemm/forward_33x20x45 gemm/backward_input_33x20x45 gemm/backward_weight_33x20x45 " +
		"spmm/forward_0 spmm/backward_input_0 spmm/sddmm_0 " +
		"spmm/forward_70 spmm/backward_input_70 spmm/sddmm_70 " +
		"spmm/forward_95 spmm/backward_input_95 spmm/sddmm_95 spmm/crossing " +
		"spmm_block32/forward_50 spmm_block32/backward_input_50 spmm_block32/sddmm_50 spmm_block32/crossing"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestWrongElementsAreInvalid(t *testing.T) {
	results, _ := measure(t, newSpoiled(map[kernel.Op]int{kernel.MatmulForward: 0, kernel.MatmulBackwardInput: 0, kernel.SDDMM: 0}))
	for _, r := range results {
		if r.Name == "gemm/backward_weight_33x20x45" {
			continue // not spoiled
		}
		spoiled := 1
		switch r.Name { // all figures that depend on the operation
		case "spmm/crossing":
			spoiled = 9
		case "spmm_block32/crossing":
			spoiled = 3
		}
		if r.Wrong != spoiled || r.OK || r.Value != 0 || r.Verdict() != "INVALID" {
			t.Errorf("one element was spoiled: %+v", r)
		}
	}
}

func TestOutput(t *testing.T) {
	here := Machine{Date: "2026-01-02T03:04:05Z", Host: "node1", Revision: "abc", Load: 0.5, CPU: "A CPU (Zen 4)",
		Path: "avx512", BLAS: "OpenBLAS 0.3.21 SkylakeX", Threads: 2}
	results := []Result{
		{Name: "spmm/forward_90", Value: 4.25, Low: 4.1, High: 4.5, Unit: "ratio", Reach: 4, OK: true, Clock: "wall", Machine: here},
		{Name: "spmm/sddmm_90", Value: 3.5, Unit: "ratio", Reach: 4, Clock: "wall", Machine: here},
		{Name: "gemm/forward_1x2x3", Value: 90.5, Unit: "GFLOP/s", OK: true, Clock: "virtual", Machine: Machine{CPU: "A CPU", Threads: 1}},
		{Name: "spmm/forward_70", Unit: "ratio", Reach: 1, Clock: "wall", Wrong: 7, Machine: Machine{CPU: "A CPU", Device: "A GPU", Threads: 1}},
	}
	var table bytes.Buffer
	expect.OK(t, WriteTable(&table, results))
	expect.Golden(t, "testdata/table.txt", table.String())
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, r := range results {
		expect.OK(t, encoder.Encode(r))
	}
	expect.Golden(t, "testdata/lines.jsonl", lines.String())
}
