package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
)

// foreign is a LLaMA or Mixtral as another program would hold it: Hugging Face's names,
// values as bytes. Nothing here calls the package under test.
type foreign struct {
	config string // without tie_word_embeddings
	tied   bool
	prefix string
	dtype  string
	shape  map[string][]int
	values map[string][]byte
}

const (
	tinyLlama = `"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16, "vocab_size": 11, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "task_specific_params": {"höhe": [1, 2.50]}`
	tinyMixtral = `"model_type": "mixtral", "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 1, "max_position_embeddings": 16, "vocab_size": 11, "num_local_experts": 3, "num_experts_per_tok": 2, "router_jitter_noise": 0.0`
)

// newLlama returns a model with random bits that are numbers; experts is 0 of a dense one.
func newLlama(dtype string, tied bool, prefix string, experts int) *foreign {
	const hidden, inner, size = 16, 12, 4
	keyed := 2
	if experts > 0 {
		keyed = 1
	}
	f := &foreign{config: tinyLlama, tied: tied, prefix: prefix, dtype: dtype, shape: map[string][]int{}, values: map[string][]byte{}}
	f.shape[prefix+"embed_tokens.weight"], f.shape[prefix+"norm.weight"] = []int{11, hidden}, []int{hidden}
	if !tied {
		f.shape["lm_head.weight"] = []int{11, hidden}
	}
	for b := range 2 {
		layer := fmt.Sprintf("%slayers.%d.", prefix, b)
		f.shape[layer+"input_layernorm.weight"], f.shape[layer+"post_attention_layernorm.weight"] = []int{hidden}, []int{hidden}
		f.shape[layer+"self_attn.q_proj.weight"], f.shape[layer+"self_attn.o_proj.weight"] = []int{hidden, hidden}, []int{hidden, hidden}
		f.shape[layer+"self_attn.k_proj.weight"], f.shape[layer+"self_attn.v_proj.weight"] = []int{keyed * size, hidden}, []int{keyed * size, hidden}
		if experts == 0 {
			f.shape[layer+"mlp.gate_proj.weight"], f.shape[layer+"mlp.up_proj.weight"] = []int{inner, hidden}, []int{inner, hidden}
			f.shape[layer+"mlp.down_proj.weight"] = []int{hidden, inner}
			continue
		}
		f.config = tinyMixtral
		f.shape[layer+"block_sparse_moe.gate.weight"] = []int{experts, hidden}
		for e := range experts {
			at := fmt.Sprintf("%sblock_sparse_moe.experts.%d.", layer, e)
			f.shape[at+"w1.weight"], f.shape[at+"w3.weight"], f.shape[at+"w2.weight"] = []int{inner, hidden}, []int{inner, hidden}, []int{hidden, inner}
		}
	}
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, name := range slices.Sorted(maps.Keys(f.shape)) {
		n := f.shape[name][0]
		for _, s := range f.shape[name][1:] {
			n *= s
		}
		for range n { // of sizes from an eighth to a half
			bits := rnd.Uint32()&^(0x7f<<24) | 0x3e<<24
			switch dtype {
			case "F32":
				f.values[name] = binary.LittleEndian.AppendUint32(f.values[name], bits)
			default:
				f.values[name] = binary.LittleEndian.AppendUint16(f.values[name], uint16(bits>>16))
			}
		}
	}
	return f
}

// file returns tensors as a safetensors file, in the order of their names.
func (f *foreign) file(names []string) []byte {
	var header, data bytes.Buffer
	header.WriteString(`{"__metadata__":{"format":"pt"}`)
	for _, name := range slices.Sorted(slices.Values(names)) {
		begin := data.Len()
		data.Write(f.values[name])
		shape := strings.ReplaceAll(fmt.Sprint(f.shape[name]), " ", ",")
		fmt.Fprintf(&header, `,"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, f.dtype, shape, begin, data.Len())
	}
	header.WriteString("}")
	for header.Len()%8 != 0 {
		header.WriteByte(' ')
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(header.Len())), header.Bytes(), data.Bytes())
}

// directory writes the model in files of each tensors, or in one file if each is 0.
func (f *foreign) directory(t *testing.T, each int) string {
	t.Helper()
	dir := t.TempDir()
	save(t, filepath.Join(dir, "config.json"), fmt.Appendf(nil, "{\n  %s, \"tie_word_embeddings\": %v\n}\n", f.config, f.tied))
	names := slices.Sorted(maps.Keys(f.shape))
	if each == 0 {
		save(t, filepath.Join(dir, "model.safetensors"), f.file(names))
		return dir
	}
	var lines []string
	size, shards := 0, slices.Collect(slices.Chunk(names, each))
	for i, list := range shards {
		file := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		save(t, filepath.Join(dir, file), f.file(list))
		for _, name := range list {
			lines = append(lines, fmt.Sprintf("    %q: %q", name, file))
			size += len(f.values[name])
		}
	}
	save(t, filepath.Join(dir, "model.safetensors.index.json"),
		fmt.Appendf(nil, "{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {\n%s\n  }\n}\n", size, strings.Join(lines, ",\n")))
	return dir
}

// A directory of LLaMA or Mixtral that another program wrote comes back byte for byte, with any
// types, as one file or several.
func TestLlamaRoundTrip(t *testing.T) {
	for _, dtype := range []string{"F32", "BF16", "F16"} {
		for _, tied := range []bool{false, true} {
			for _, experts := range []int{0, 3} {
				for _, each := range []int{0, 5} {
					prefix := map[bool]string{true: "", false: "model."}[tied && each > 0]
					f := newLlama(dtype, tied, prefix, experts)
					dir, out := f.directory(t, each), t.TempDir()
					expect.OK(t, imported(t, dir).WriteHuggingFace(out, "", nil))
					entries, err := os.ReadDir(dir)
					expect.OK(t, err)
					for _, e := range entries {
						if !bytes.Equal(read(t, filepath.Join(dir, e.Name())), read(t, filepath.Join(out, e.Name()))) {
							t.Errorf("%s, tied %v, %d experts, %d a file: %s has changed", dtype, tied, experts, each, e.Name())
						}
					}
				}
			}
		}
	}
}

// A dynmo weights file has the types of the imported files. q, k and v are the rows of one
// tensor, and so are gate and up.
func TestLlamaFused(t *testing.T) {
	f := newLlama("BF16", false, "model.", 0)
	w := imported(t, f.directory(t, 0))
	want := map[string][]string{
		"block.1/qkv.weight":    {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
		"block.1/gateup.weight": {"mlp.gate_proj.weight", "mlp.up_proj.weight"},
	}
	for _, p := range w.Config.Model.Weights() {
		var values []byte
		for _, name := range want[p.Name] {
			values = append(values, f.values["model.layers.1."+name]...)
		}
		if got, err := w.rows(nil, p, 0, p.Shape[0]); err != nil || want[p.Name] != nil && !bytes.Equal(got, values) || w.dtype(p) != bf16 {
			t.Errorf("%s: %s, %d bytes, %v", p.Name, w.dtype(p), len(got), err)
		}
		if want[p.Name] != nil { // rows that begin in one tensor and end in another
			row := 2 * p.Shape[1]
			if got, err := w.rows(nil, p, 7, 22); err != nil || !bytes.Equal(got, values[7*row:22*row]) {
				t.Errorf("%s: rows 7 to 21 are others, %v", p.Name, err)
			}
		}
	}
	if c := w.Config; c.Model.KeyValueHeads != 2 || c.Model.Intermediate != 12 || c.Model.NormEps != 1e-6 || c.End != 2 {
		t.Errorf("%+v", c)
	}
}

// A weight whose parts are of several types is float32.
func TestLlamaMixedTypes(t *testing.T) {
	f := newLlama("F32", true, "model.", 0)
	dir := f.directory(t, 0)
	var list []Tensor
	for name, shape := range f.shape {
		d := F32
		if strings.HasSuffix(name, "k_proj.weight") {
			d, f.values[name] = bf16, f.values[name][:len(f.values[name])/2]
			for i := range len(f.values[name]) / 2 { // 1.5
				binary.LittleEndian.PutUint16(f.values[name][2*i:], 0x3fc0)
			}
		}
		whole := []int64{}
		for _, s := range shape {
			whole = append(whole, int64(s))
		}
		list = append(list, Tensor{Name: name, DType: d, Shape: whole})
	}
	var b bytes.Buffer
	expect.OK(t, Write(&b, nil, list, whole(func(t Tensor) ([]byte, error) { return f.values[t.Name], nil })))
	save(t, filepath.Join(dir, "model.safetensors"), b.Bytes())
	w := imported(t, dir)
	for _, p := range w.Config.Model.Weights() {
		if p.Name == "block.0/qkv.weight" {
			values, err := w.Read(p)
			if expect.OK(t, err); values[16*16] != 1.5 || w.dtype(p) != F32 {
				t.Errorf("the first key weight is %v, of %s", values[16*16], w.dtype(p))
			}
		}
	}
}

// The rotary buffers of older files are left out.
func TestLlamaBuffers(t *testing.T) {
	f := newLlama("F32", false, "model.", 0)
	names := slices.Collect(maps.Keys(f.shape))
	want := f.file(names)
	const buffer = "model.layers.0.self_attn.rotary_emb.inv_freq"
	f.shape[buffer], f.values[buffer] = []int{1}, make([]byte, 4)
	out := t.TempDir()
	expect.OK(t, imported(t, f.directory(t, 0)).WriteHuggingFace(out, "", nil))
	if !bytes.Equal(read(t, filepath.Join(out, "model.safetensors")), want) {
		t.Error("the model has changed")
	}
}

// TestFitLlama: weights fit a model of the same arithmetic only, and an error names the
// setting.
func TestFitLlama(t *testing.T) {
	w := imported(t, newLlama("BF16", false, "model.", 3).directory(t, 0))
	good := w.Config.Model
	if _, err := w.Fit(good); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(c *model.Config){
		"model.family is gpt2, the weights have llama": func(c *model.Config) { c.Family = "" },
		"model.key_value_heads is 2, the weights":      func(c *model.Config) { c.KeyValueHeads = 2 },
		"model.intermediate is 16":                     func(c *model.Config) { c.Intermediate = 16 },
		"model.norm_eps is 1e-06":                      func(c *model.Config) { c.NormEps = 1e-6 },
		"model.rope_base is 10000":                     func(c *model.Config) { c.Rope.Base = 10000 },
		"model.rope_scaling is linear, the weights have none": func(c *model.Config) {
			c.Rope.Scaling, c.Rope.Factor = "linear", 2
		},
		"moe.experts is 4": func(c *model.Config) { modeltest.Edit(c, func(k *moe.Experts) { k.Count = 4 }) },
		"moe.top is 1":     func(c *model.Config) { modeltest.Edit(c, func(k *moe.Experts) { k.Top = 1 }) },
	} {
		c := good
		change(&c)
		if _, err := w.Fit(c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
