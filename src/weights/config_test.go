package weights

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/model"
)

// small is the shape in the config.json of GPT-2 124M. Its other keys are those of
// configuration_gpt2.py.
const small = `{"activation_function":"gelu_new","architectures":["GPT2LMHeadModel"],"attn_pdrop":0.1,"bos_token_id":50256,
"embd_pdrop":0.1,"eos_token_id":50256,"initializer_range":0.02,"layer_norm_epsilon":1e-05,"model_type":"gpt2","n_ctx":1024,
"n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"resid_pdrop":0.1,"vocab_size":50257}`

func TestParseConfig(t *testing.T) {
	want := model.Config{Blocks: 12, Hidden: 768, Heads: 12, Sequence: 1024, Vocab: 50257, Tied: true}
	for _, source := range []string{small, `{"model_type":"gpt2"}`, string(newConfig(want).Text)} {
		c, err := parseConfig([]byte(source))
		expect.OK(t, err)
		if !reflect.DeepEqual(c.Model, want) || string(c.Text) != source {
			t.Errorf("%s: %+v", source, c)
		}
	}
	if c := newConfig(want); !reflect.DeepEqual(c.Model, want) {
		t.Errorf("made %+v", c.Model)
	}
}

// TestNewConfigSaysWhatHuggingFaceWouldAssume: keys that are left out have the values of
// GPT2Config, a dropout of 0.1 and GPT-2's ids, so that they are written.
func TestNewConfigSaysWhatHuggingFaceWouldAssume(t *testing.T) {
	for vocab, special := range map[int]string{50257: "50256", 50304: "null", 256: "null"} {
		var keys map[string]json.RawMessage
		expect.OK(t, json.Unmarshal(newConfig(model.Config{Blocks: 1, Hidden: 8, Heads: 2, Sequence: 4, Vocab: vocab, Tied: true}).Text, &keys))
		for key, want := range map[string]string{
			"attn_pdrop": "0.0", "embd_pdrop": "0.0", "resid_pdrop": "0.0", "bos_token_id": special, "eos_token_id": special,
			"n_ctx": "4", // which llama.cpp's converter reads
		} {
			if got := string(keys[key]); got != want {
				t.Errorf("vocabulary of %d: %s is %q, want %s", vocab, key, got, want)
			}
		}
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{`{"model_type":"qwen2"}`, `model_type: byte 14: "qwen2" is not supported, want one of gpt2, llama, mistral, mixtral`},
		{"{\"model_type\":\"gpt2\",\"a\\nb\":1}", `a\nb: byte 28: unknown; the nearest`},
		{`{"n_layer":2}`, "model_type is missing, want one of gpt2, llama, mistral, mixtral, llama_moe"},
		{`{"model_type":["gpt2"]}`, `model_type: byte 14: ["gpt2"] is not supported`},
		{`{"model_type":"gpt2","model_type":"gpt2"}`, `key "model_type" stands twice`},
		{"{\"model_type\":\"gpt2\xff\"}", "byte 19: not UTF-8"},
		{`{"model_type":"gpt2"`, "byte 20: unexpected end"},
		{`["gpt2"]`, "byte 0: want a JSON object"},
		{`{"model_type":"gpt2","n_layer":0}`, "n_layer: byte 31: 0: want an integer from 1 to 4096"},
		{`{"model_type":"gpt2","n_layer":99999999999999999999}`, "n_layer: byte 31: 9"},
		{`{"model_type":"gpt2","n_embd":1e3}`, "n_embd: byte 30: 1e3: want an integer"},
		{`{"model_type":"gpt2","n_embd":null}`, "n_embd: byte 30: null: want an integer"},
		{`{"model_type":"gpt2","n_head":7}`, "n_head: byte 30: 7 does not divide n_embd, 768"},
		{`{"model_type":"gpt2","n_inner":1024}`, "n_inner: byte 31: 1024 is not supported"},
		{`{"model_type":"gpt2","activation_function":"relu"}`, `activation_function: byte 43: "relu" is not supported`},
		{`{"model_type":"gpt2","activation_function":{"a":1}}`, "activation_function: byte 43: "},
		{`{"model_type":"gpt2","layer_norm_epsilon":1e-6}`, "layer_norm_epsilon: byte 42: 1e-6 is not supported"},
		{`{"model_type":"gpt2","scale_attn_by_inverse_layer_idx":true}`, "scale_attn_by_inverse_layer_idx: byte 55: true"},
		{`{"model_type":"gpt2","tie_word_embeddings":null}`, "tie_word_embeddings: byte 43: null: want true or false"},
	} {
		if _, err := parseConfig([]byte(c.source)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.source, err, c.want)
		}
	}
}

// Every prefix of a sound configuration is refused.
func TestParseConfigTruncated(t *testing.T) {
	for n := range small {
		if _, err := parseConfig([]byte(small[:n])); err == nil {
			t.Errorf("%d of %d bytes are taken for a configuration", n, len(small))
		}
	}
}

// FuzzParseConfig: a configuration is refused, or describes a model whose size
// does not overflow.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(`{"model_type":"gpt2","n_inner":null,"tie_word_embeddings":false,"n_embd":131072,"n_layer":4096,"vocab_size":16777216}`))
	f.Fuzz(func(t *testing.T, source []byte) {
		c, err := parseConfig(source)
		if err != nil {
			return
		}
		total := int64(0)
		for _, p := range c.Model.Weights() {
			if total += p.Bytes(); p.Bytes() <= 0 || total <= 0 {
				t.Fatalf("%s: %d bytes of %d", p.Name, p.Bytes(), total)
			}
		}
	})
}

// The token that ends texts is read, and written where Hugging Face's loaders look for
// it.
func TestConfigEnd(t *testing.T) {
	for _, c := range []struct {
		config, generation string
		want               []int32
	}{
		{`{"eos_token_id":[7,9]}`, "", []int32{7, 9}},
		{`{"eos_token_id":7}`, "", []int32{7}},
		{`{"eos_token_id":7}`, `{"eos_token_id":[8,9,50257]}`, []int32{8, 9}},
		{`{"eos_token_id":[7]}`, `{"eos_token_id":null}`, []int32{7}},
		{`{"eos_token_id":50257}`, "{}", nil},
		{`{"eos_token_id":"x"}`, "", nil},
	} {
		w := Weights{Config: Config{Model: model.Config{Vocab: 50257}, Text: []byte(c.config)}, Generation: []byte(c.generation)}
		if got := w.Ends(); !slices.Equal(got, c.want) {
			t.Errorf("%s and %s end with %v, want %v", c.config, c.generation, got, c.want)
		}
	}
	for source, want := range map[string]int32{
		`{"model_type":"gpt2"}`: -1, `{"model_type":"gpt2","eos_token_id":null}`: -1, `{"model_type":"gpt2","eos_token_id":[1,2]}`: -1,
		`{"model_type":"gpt2","eos_token_id":50257}`: -1, `{"model_type":"gpt2","eos_token_id":7}`: 7,
	} {
		if c, err := parseConfig([]byte(source)); err != nil || c.End != want {
			t.Errorf("%s: ends with %d, want %d (%v)", source, c.End, want, err)
		}
	}
	w := imported(t, newGPT2(true, "").directory(t))
	w.Config = endingConfig(w.Config.Model, 5)
	dir := filepath.Join(t.TempDir(), "hf")
	expect.OK(t, w.WriteHuggingFace(dir, F32, map[string][]byte{"vocab.json": []byte("{}")}))
	if got, want := string(read(t, filepath.Join(dir, "generation_config.json"))), "{\n  \"bos_token_id\": 5,\n  \"eos_token_id\": 5\n}\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if again := imported(t, dir); again.Config.End != 5 || string(read(t, filepath.Join(dir, "vocab.json"))) != "{}" {
		t.Errorf("%+v", again.Config)
	}
}

// A weight's values are the file's, whatever its shape there.
func TestRead(t *testing.T) {
	g := newGPT2(true, "")
	w := imported(t, g.directory(t))
	for _, p := range w.Config.Model.Weights() {
		values, err := w.Read(p)
		expect.OK(t, err)
		from := g.values[p.HuggingFace]
		at := 5
		if p.Transposed { // element (0, 5) there is (5, 0) here
			at = 5 * int(p.Shape[1])
		}
		if len(values) != len(from) || values[at] != from[5] {
			t.Errorf("%s: %d values, %v at %d, want %d, %v", p.Name, len(values), values[at], at, len(from), from[5])
		}
	}
}
