package nodebench

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// onHost returns a stand-in for a GPU: the reference, for both types.
func onHost(k kernel.Backend) GPU {
	return GPU{Device: devcpu.New(device.NewWall()), F32: k, BF16: k, Rounds: 10, Quick: true, Emulated: true}
}

func TestGPUFigures(t *testing.T) {
	g := onHost(ref.New(tensor.F32))
	results, err := g.Measure(nil)
	expect.OK(t, err)
	if used := g.Device.Used(); used != 0 {
		t.Errorf("%d bytes were not freed", used)
	}
	names := map[string]bool{}
	for _, r := range results {
		names[r.Name] = true
		if r.Wrong != 0 || r.Reach != 0 || !r.OK || !strings.HasPrefix(r.Name, "emulated/gpu/") {
			t.Errorf("%+v", r)
		}
	}
	for _, name := range []string{
		"copy", "gemm_f32_48", "layernorm_forward", "layernorm_backward_input_to_copy", "layernorm_backward_weight",
		"cross_entropy", "adamw", "gelu_backward", "embedding_backward", "attention_forward_hs32_to_gemm",
		"attention_backward_hs128", "sparse_attention_backward_hs32_time", "sparse_attention_hs64_to_dense", "product_backward_weight_40x192x48_time", "product_forward_40x48x517", "spmm_forward_f32_50", "sddmm_f32_98", "spmm_crossing_f32", "spmm_block32_forward_f32_90", "spmm_block32_crossing_f32", "step_utilisation",
	} {
		if !names["emulated/gpu/"+name] {
			t.Errorf("no figure %s", name)
		}
	}
}

// TestGPUReaches lists the figures that a full run on a GPU must reach.
func TestGPUReaches(t *testing.T) {
	g := &gpu{bench: newBench(ref.New(tensor.F32), devcpu.New(device.NewWall())), copied: 4e12}
	g.bandwidth("adamw", 4e9, 1e-3, memoryReach, 0)
	g.bandwidth("gelu_forward", 4e9, 2e-3, 0, 3)
	for i, want := range []Result{
		{Name: "gpu/adamw", Value: 4000, Unit: "GB/s", OK: true, Clock: "wall"},
		{Name: "gpu/adamw_to_copy", Value: 1, Unit: "ratio", Reach: 0.8, OK: true, Clock: "wall"},
		{Name: "gpu/adamw_time", Value: 1000, Unit: "us", OK: true, Clock: "wall"},
		{Name: "gpu/gelu_forward", Unit: "GB/s", Clock: "wall", Wrong: 3},
		{Name: "gpu/gelu_forward_to_copy", Unit: "ratio", Clock: "wall", Wrong: 3},
		{Name: "gpu/gelu_forward_time", Unit: "us", Clock: "wall", Wrong: 3},
	} {
		if got := g.bench.results[i]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestGPUMeasuresWhatIsAskedFor(t *testing.T) {
	g := onHost(ref.New(tensor.F32))
	results, err := g.Measure([]string{"gelu"})
	expect.OK(t, err)
	var names []string
	for _, r := range results {
		names = append(names, strings.TrimPrefix(r.Name, "emulated/gpu/"))
	}
	want := "copy gemm_f32_48 gemm_f32_48 gelu_forward gelu_forward_to_copy gelu_forward_time gelu_backward gelu_backward_to_copy gelu_backward_time"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	_, err = g.Measure([]string{"geluu"})
	if err == nil || !strings.Contains(err.Error(), `no "geluu" to measure: want some of copy, gemm`) {
		t.Errorf("error %v", err)
	}
}

// wrongs has, by operation, the operand in which one element is wrong at a checked place.
var wrongs = map[kernel.Op]int{
	kernel.MatmulForward: 0, kernel.SpMMForward: 0, kernel.SpMMBackwardInput: 0, kernel.SDDMM: 0,
}

func TestWrongGPUFiguresAreInvalid(t *testing.T) {
	results, err := onHost(newSpoiled(wrongs)).Measure([]string{"spmm"})
	expect.OK(t, err)
	for _, r := range results {
		right := strings.HasSuffix(r.Name, "/copy") || strings.Contains(r.Name, "_crossing_")
		if (r.Verdict() == "INVALID") == right {
			t.Errorf("one element was spoiled: %+v", r)
		}
	}
}

// figures has the operations that figures measure, by the beginning of their names.
var figures = map[string]kernel.Op{
	"product_forward": kernel.MatmulForward, "product_backward_input": kernel.MatmulBackwardInput, "product_backward_weight": kernel.MatmulBackwardWeight,
	"layernorm_forward": kernel.NormForward, "layernorm_backward_input": kernel.NormBackwardInput, "layernorm_backward_weight": kernel.NormBackwardWeight,
	"rmsnorm_forward": kernel.NormForward, "rmsnorm_backward_input": kernel.NormBackwardInput, "rmsnorm_backward_weight": kernel.NormBackwardWeight,
	"attention_forward": kernel.AttentionForward, "attention_backward": kernel.AttentionBackward,
	"sparse_attention_forward": kernel.SparseAttentionForward, "sparse_attention_backward": kernel.SparseAttentionBackward,
	"embedding_forward": kernel.EmbeddingForward, "embedding_backward": kernel.EmbeddingBackward,
	"gelu_forward": kernel.GELUForward, "gelu_backward": kernel.GELUBackward, "swiglu_forward": kernel.SwiGLUForward, "swiglu_backward": kernel.SwiGLUBackward,
	"experts_forward": kernel.GroupedForward, "experts_backward_input": kernel.GroupedBackwardInput, "experts_backward_weight": kernel.GroupedBackwardWeight,
	"cross_entropy": kernel.CrossEntropy, "adamw": kernel.AdamWUpdate, "rotary": kernel.Rotary, "combine_rows": kernel.CombineRows, "combine_gradient": kernel.CombineGradient,
}

// TestEveryResultIsChecked spoils one element of the first result of every operation, then of the
// second, and so on.
func TestEveryResultIsChecked(t *testing.T) {
	parts := slices.DeleteFunc(GPUParts(), func(part string) bool { return part == "step" || part == "spmm" })
	for place := range 4 {
		spoiled, seen := map[kernel.Op]int{}, map[kernel.Op]bool{}
		for _, op := range figures {
			if list := op.Of().Operands; place < len(list) && list[place].Use != kernel.Read {
				spoiled[op] = place
			}
		}
		results, err := onHost(newSpoiled(spoiled)).Measure(parts)
		expect.OK(t, err)
		for _, r := range results {
			for begin, op := range figures {
				if !strings.HasPrefix(r.Name, "emulated/gpu/"+begin) {
					continue
				}
				if _, is := spoiled[op]; is {
					seen[op] = true
					if r.Verdict() != "INVALID" {
						t.Errorf("one element of operand %d of %s was spoiled: %+v", place, op, r)
					}
				}
			}
		}
		if len(seen) != len(spoiled) {
			t.Errorf("operand %d: figures of %d operations, want %d", place, len(seen), len(spoiled))
		}
	}
}

// tuner is a backend whose library chooses among several algorithms.
type tuner struct {
	kernel.Backend
	asked, took int
}

func (k *tuner) Tune(_ device.Device, _ device.Stream, products []kernel.Product) ([]byte, error) {
	k.asked += len(products)
	return []byte("the third"), nil
}

func (k *tuner) Choose(choices []byte) error {
	k.took++
	return nil
}

func (*tuner) Fallbacks() int64 { return 2 }

// TestGPUTunes: products are measured with the algorithms of training. These are reported, and so
// is the number of products without any.
func TestGPUTunes(t *testing.T) {
	k := &tuner{Backend: ref.New(tensor.F32)}
	g, said := onHost(k), ""
	g.Say = func(text string) { said = text }
	results, err := g.Measure([]string{"products"})
	expect.OK(t, err)
	last := results[len(results)-1]
	if k.asked != 30 || k.took != 10 || said != "algorithms of products: the third" || last.Name != "emulated/gpu/products_fallen_back" || last.Value != 2 {
		t.Errorf("%d products were tuned in %d calls, %q, %s = %v", k.asked, k.took, said, last.Name, last.Value)
	}
}

// others is a backend with products of NVIDIA's libraries. They fail, or give the reference's
// results; some algorithms are missing.
type others struct {
	kernel.Backend
	fail  error
	slots map[int]func(device.Stream)
}

func (k *others) put(slot int, run func(device.Stream)) error {
	if k.fail == nil {
		k.slots[slot] = run
	}
	return k.fail
}

func (k *others) PrepareSpMM(_ device.Stream, slot int, byRows bool, algorithm int, out, inp tensor.Mem, w kernel.CSR, n int) error {
	if algorithm == 3 {
		return errors.New("not supported")
	}
	return k.put(slot, func(s device.Stream) {
		if !byRows {
			k.SpMMForward(s, out, inp, w, none, n)
			return
		}
		y, x, v := tensor.Of[float32](out), tensor.Of[float32](inp), tensor.Of[float32](w.Values)
		first, col := tensor.Of[int32](w.RowPtr), tensor.Of[int32](w.ColIdx)
		clear(y)
		for r := range w.Rows {
			for e := first[r]; e < first[r+1]; e++ {
				for i := range n {
					y[r*n+i] += v[e] * x[int(col[e])*n+i]
				}
			}
		}
	})
}

func (k *others) PrepareSDDMM(_ device.Stream, slot int, byRows bool, dvalues, dout, inp tensor.Mem, w kernel.CSR, n int) error {
	if byRows {
		return errors.New("not supported")
	}
	return k.put(slot, func(s device.Stream) { k.SDDMM(s, dvalues, none, dout, inp, w, n) })
}

func (k *others) PrepareTF32(_ device.Stream, slot int, out, inp, weight tensor.Mem, n, c, o int) error {
	return k.put(slot, func(s device.Stream) { k.MatmulForward(s, out, inp, weight, none, n, c, o) })
}

func (k *others) RunRival(s device.Stream, slot int) { k.slots[slot](s) }
func (k *others) ForgetRivals() error                { clear(k.slots); return nil }

// TestRivalIsOptional: without cuSPARSE the other figures of sparse products stay, and the error
// names the missing part.
func TestRivalIsOptional(t *testing.T) {
	for _, fail := range []error{nil, errors.New("no libcusparse")} {
		g := onHost(&others{ref.New(tensor.F32), fail, map[int]func(device.Stream){}})
		g.Emulated = false
		results, err := g.Measure([]string{"spmm"})
		if !errors.Is(err, fail) {
			t.Errorf("error %v, want %v", err, fail)
		}
		count := map[string]int{}
		for _, r := range results {
			if r.Wrong > 0 {
				t.Errorf("%+v", r)
			}
			name := strings.TrimPrefix(r.Name, "gpu/")
			count[name[:strings.LastIndex(name, "_f32")+1]]++
			if strings.HasPrefix(name, "spmm_cusparse_f32") && !strings.HasPrefix(r.Unit, "ms, ") {
				t.Errorf("%s does not say by which algorithm: %q", name, r.Unit)
			}
		}
		both := 2 * len(gpuSparsities) // both types are one here
		for name, rival := range map[string]bool{
			"spmm_to_dense_": false, "spmm_to_cusparse_": true, "spmm_cusparse_prepare_": true, "sddmm_to_cusparse_": true, "spmm_to_tf32_": true,
		} {
			if want := both; count[name] != want && (!rival || fail == nil) || rival && fail != nil && count[name] != 0 {
				t.Errorf("%v: %d figures %s, want %d of both types together", fail, count[name], name, want)
			}
		}
	}
}

// TestRivalsAreChecked: a library's product with one wrong element is invalid.
func TestRivalsAreChecked(t *testing.T) {
	g := onHost(&others{newSpoiled(wrongs), nil, map[int]func(device.Stream){}})
	g.Emulated = false
	results, err := g.Measure([]string{"spmm"})
	expect.OK(t, err)
	for _, r := range results {
		for _, name := range []string{"sddmm_cusparse_f32_", "spmm_dense_tf32_f32_"} {
			if strings.HasPrefix(r.Name, "gpu/"+name) && r.Verdict() != "INVALID" {
				t.Errorf("one element was spoiled: %+v", r)
			}
		}
	}
}
