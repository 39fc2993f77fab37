package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"

	"dynmo/src/expect"
)

// gpt2 is a GPT-2 as another program would hold it: Hugging Face's names,
// Conv1D matrices (in, out). Nothing here calls the package under test.
type gpt2 struct {
	blocks, hidden, heads, sequence, vocab int
	tied                                   bool
	prefix                                 string
	shape                                  map[string][]int
	values                                 map[string][]float32
}

// newGPT2 returns a model with random weights, none at a special value.
func newGPT2(tied bool, prefix string) *gpt2 {
	g := &gpt2{blocks: 2, hidden: 8, heads: 2, sequence: 6, vocab: 13, tied: tied, prefix: prefix,
		shape: map[string][]int{}, values: map[string][]float32{}}
	c := g.hidden
	g.shape["wte.weight"], g.shape["wpe.weight"] = []int{g.vocab, c}, []int{g.sequence, c}
	for b := range g.blocks {
		h := fmt.Sprintf("h.%d.", b)
		for _, norm := range []string{"ln_1", "ln_2"} {
			g.shape[h+norm+".weight"], g.shape[h+norm+".bias"] = []int{c}, []int{c}
		}
		for name, size := range map[string][2]int{"attn.c_attn": {c, 3 * c}, "attn.c_proj": {c, c}, "mlp.c_fc": {c, 4 * c}, "mlp.c_proj": {4 * c, c}} {
			g.shape[h+name+".weight"], g.shape[h+name+".bias"] = []int{size[0], size[1]}, []int{size[1]}
		}
	}
	g.shape["ln_f.weight"], g.shape["ln_f.bias"] = []int{c}, []int{c}
	if !tied {
		g.shape["lm_head.weight"] = []int{g.vocab, c}
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, name := range g.names() {
		n := 1
		for _, s := range g.shape[name] {
			n *= s
		}
		for range n {
			g.values[name] = append(g.values[name], float32(0.4*rnd.NormFloat64()+0.1))
		}
	}
	return g
}

// full returns a tensor's name in the file.
func (g *gpt2) full(name string) string {
	if name == "lm_head.weight" {
		return name
	}
	return g.prefix + name
}

// names returns all names in the order of the file's.
func (g *gpt2) names() []string {
	names := slices.Collect(maps.Keys(g.shape))
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(g.full(a), g.full(b)) })
	return names
}

// file returns the tensors of some names as a safetensors file, in that order.
func (g *gpt2) file(names []string) []byte {
	var header, data bytes.Buffer
	header.WriteString(`{"__metadata__":{"format":"pt"}`)
	for _, name := range names {
		begin := data.Len()
		binary.Write(&data, binary.LittleEndian, g.values[name])
		shape := strings.ReplaceAll(fmt.Sprint(g.shape[name]), " ", ",")
		fmt.Fprintf(&header, `,"%s":{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}`, g.full(name), shape, begin, data.Len())
	}
	header.WriteString("}")
	for header.Len()%8 != 0 {
		header.WriteByte(' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(header.Len()))
	return append(append(out, header.Bytes()...), data.Bytes()...)
}

// config returns config.json, with a key that means nothing here.
func (g *gpt2) config() []byte {
	return fmt.Appendf(nil, `{
  "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": %d, "n_embd": %d, "n_head": %d,
  "n_positions": %d, "vocab_size": %d, "n_inner": null, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
  "tie_word_embeddings": %v, "task_specific_params": {"höhe": [1, 2.50]}
}
`, g.blocks, g.hidden, g.heads, g.sequence, g.vocab, g.tied)
}

// directory writes the model as one file.
func (g *gpt2) directory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	save(t, filepath.Join(dir, "config.json"), g.config())
	save(t, filepath.Join(dir, "model.safetensors"), g.file(g.names()))
	return dir
}

func save(t testing.TB, path string, b []byte) {
	t.Helper()
	expect.OK(t, os.WriteFile(path, b, 0o600))
}

// logits computes the model's answer (t, vocab) to tokens in float64, by the
// plainest means: rows of numbers, one token after the other.
func (g *gpt2) logits(tokens []int32) [][]float64 {
	var x [][]float64
	for t, token := range tokens {
		x = append(x, g.row("wte.weight", int(token)))
		floats.Add(x[t], g.row("wpe.weight", t))
	}
	for b := range g.blocks {
		h := fmt.Sprintf("h.%d.", b)
		var qkv [][]float64
		for t := range x {
			qkv = append(qkv, g.conv1d(h+"attn.c_attn", g.norm(h+"ln_1", x[t])))
		}
		for t := range x {
			floats.Add(x[t], g.conv1d(h+"attn.c_proj", g.attend(qkv, t)))
			inner := g.conv1d(h+"mlp.c_fc", g.norm(h+"ln_2", x[t]))
			for j, v := range inner {
				inner[j] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*math.Pow(v, 3))))
			}
			floats.Add(x[t], g.conv1d(h+"mlp.c_proj", inner))
		}
	}
	head := "wte.weight"
	if !g.tied {
		head = "lm_head.weight"
	}
	var logits [][]float64
	for t := range x {
		last := g.norm("ln_f", x[t])
		var row []float64
		for v := range g.vocab {
			row = append(row, floats.Dot(last, g.row(head, v)))
		}
		logits = append(logits, row)
	}
	return logits
}

func (g *gpt2) row(name string, i int) []float64 {
	c := g.hidden
	row := make([]float64, c)
	for j := range row {
		row[j] = float64(g.values[name][i*c+j])
	}
	return row
}

func (g *gpt2) norm(name string, x []float64) []float64 {
	var mean, variance float64
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	y := make([]float64, len(x))
	for j, v := range x {
		y[j] = (v-mean)/math.Sqrt(variance+1e-5)*float64(g.values[name+".weight"][j]) + float64(g.values[name+".bias"][j])
	}
	return y
}

// conv1d returns x·W + b with W (in, out).
func (g *gpt2) conv1d(name string, x []float64) []float64 {
	w, b := g.values[name+".weight"], g.values[name+".bias"]
	y := make([]float64, len(b))
	for o := range y {
		y[o] = float64(b[o])
		for i, v := range x {
			y[o] += v * float64(w[i*len(b)+o])
		}
	}
	return y
}

// attend returns the attention output of token t over itself and the tokens before it.
func (g *gpt2) attend(qkv [][]float64, t int) []float64 {
	c, size := g.hidden, g.hidden/g.heads
	out := make([]float64, c)
	for h := range g.heads {
		cut := func(row []float64, part int) []float64 { return row[part*c+h*size:][:size] }
		weights, sum := make([]float64, t+1), 0.0
		for s := range weights {
			weights[s] = math.Exp(floats.Dot(cut(qkv[t], 0), cut(qkv[s], 1)) / math.Sqrt(float64(size)))
			sum += weights[s]
		}
		for s, w := range weights {
			for j, v := range cut(qkv[s], 2) {
				out[h*size+j] += w / sum * v
			}
		}
	}
	return out
}
