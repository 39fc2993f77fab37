package weights

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// sharded is a model in two files, and what an index says of them.
type sharded struct {
	files map[string][]string // names of tensors by file
	says  map[string]string   // file by tensor
	size  string              // metadata.total_size
}

// shard returns the small GPT-2 in two files, its tensors and a sound index.
func shard() (*gpt2, sharded) {
	g := newGPT2(true, "")
	names, size := g.names(), 0
	s := sharded{map[string][]string{"a.safetensors": names[:9], "b.safetensors": names[9:]}, map[string]string{}, ""}
	for file, list := range s.files {
		for _, name := range list {
			s.says[name] = file
			size += 4 * len(g.values[name])
		}
	}
	s.size = fmt.Sprint(size)
	return g, s
}

// index returns the index as Hugging Face's library writes it, with a key that means
// nothing here.
func (s sharded) index() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"metadata\": {\n    \"total_parameters\": 7,\n    \"total_size\": %s\n  },\n  \"weight_map\": {\n", s.size)
	var lines []string
	for name, file := range s.says {
		lines = append(lines, fmt.Sprintf("    %q: %q", name, file))
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ",\n") + "\n  }\n}\n")
	return b.Bytes()
}

// directory writes config, index and files.
func (s sharded) directory(t *testing.T, g *gpt2) string {
	t.Helper()
	dir := t.TempDir()
	save(t, filepath.Join(dir, "config.json"), g.config())
	save(t, filepath.Join(dir, "model.safetensors.index.json"), s.index())
	for name, names := range s.files {
		save(t, filepath.Join(dir, name), g.file(names))
	}
	return dir
}

// A sharded model comes back in the same files, byte for byte. As bfloat16 the index says
// half the size, and nothing else in it changes.
func TestShardsRoundTrip(t *testing.T) {
	g, s := shard()
	dir, out := s.directory(t, g), t.TempDir()
	w := imported(t, dir)
	expect.OK(t, w.WriteHuggingFace(out, "", nil))
	for _, name := range []string{"config.json", "model.safetensors.index.json", "a.safetensors", "b.safetensors"} {
		if !bytes.Equal(read(t, filepath.Join(dir, name)), read(t, filepath.Join(out, name))) {
			t.Errorf("%s has changed", name)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "model.safetensors")); err == nil {
		t.Error("the shards are written, and one file too")
	}
	expect.OK(t, w.WriteHuggingFace(out, bf16, nil))
	s.size = fmt.Sprint(sizeOf(g, s) / 2)
	if got := read(t, filepath.Join(out, "model.safetensors.index.json")); !bytes.Equal(got, s.index()) {
		t.Errorf("as bfloat16 the index is %s", got)
	}
}

// An index of tensors that are left out, as masks are, is written without them.
func TestShardsWithBuffers(t *testing.T) {
	g, s := shard()
	g.shape["h.0.attn.bias"], g.values["h.0.attn.bias"] = []int{1, 1, 2, 2}, []float32{1, 0, 1, 1}
	s.files["b.safetensors"] = append([]string{"h.0.attn.bias"}, s.files["b.safetensors"]...)
	s.says["h.0.attn.bias"] = "b.safetensors"
	out := t.TempDir()
	s.size = fmt.Sprint(16 + sizeOf(g, s))
	expect.OK(t, imported(t, s.directory(t, g)).WriteHuggingFace(out, "", nil))
	again := imported(t, out)
	if again.shards.files["h.0.attn.bias"] != "" || len(again.shards.files) != 28 || string(again.shards.total.JSON) != fmt.Sprint(sizeOf(g, s)) {
		t.Errorf("index %s", again.shards.text)
	}
}

// sizeOf returns the bytes of the tensors that are no buffers.
func sizeOf(g *gpt2, s sharded) (size int) {
	for name := range s.says {
		if !strings.HasSuffix(name, ".attn.bias") {
			size += 4 * len(g.values[name])
		}
	}
	return size
}

// TestShardsRefused: what is missing, too many, or not as the index says.
func TestShardsRefused(t *testing.T) {
	const tensor = "h.0.attn.c_attn.bias"
	for _, c := range []struct {
		name   string
		change func(s *sharded)
		want   string
	}{
		{"a shard is missing", func(s *sharded) { delete(s.files, "b.safetensors") }, "b.safetensors: no such file or directory: a shard that model.safetensors.index.json names"},
		{"a shard too many", func(s *sharded) { s.files["model-00003-of-00003.safetensors"] = nil }, "model-00003-of-00003.safetensors: a shard that model.safetensors.index.json does not name"},
		{"a tensor in another file", func(s *sharded) { s.says[tensor] = "b.safetensors" }, `index.json: weight_map: tensor "h.0.attn.c_attn.bias": is in a.safetensors, not in b.safetensors`},
		{"a tensor in no file", func(s *sharded) { s.says["x"] = "a.safetensors" }, `index.json: weight_map: tensor "x": is not in a.safetensors, nor in another shard`},
		{"a tensor that it does not name", func(s *sharded) { delete(s.says, tensor) }, `index.json: weight_map does not name tensor "h.0.attn.c_attn.bias", which is in a.safetensors`},
		{"a tensor in two files", func(s *sharded) { s.files["b.safetensors"] = append([]string{tensor}, s.files["b.safetensors"]...) }, `tensor "h.0.attn.c_attn.bias" is in two files, a.safetensors and b.safetensors`},
		{"half of the tensors", func(s *sharded) {
			for _, name := range s.files["b.safetensors"] {
				delete(s.says, name)
			}
			delete(s.files, "b.safetensors")
			s.size = "1408"
		}, `tensor "h.0.mlp.c_fc.weight" is missing (19 of 28 are)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, s := shard()
			c.change(&s)
			if _, err := OpenHuggingFace(s.directory(t, g)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestShardsOutside: files that are not in the directory are not opened.
func TestShardsOutside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "b.safetensors")
	save(t, outside, newGPT2(true, "").file(nil))
	for file, want := range map[string]string{
		"../b.safetensors": "want one without directories", outside: "want one without directories", "sub/b.safetensors": "want one without directories",
		`..\b.safetensors`: "want one without directories", ".": "want one without directories", "": "want one without directories",
	} {
		g, s := shard()
		s.says["h.0.attn.c_attn.bias"] = file
		dir := s.directory(t, g)
		if _, err := OpenHuggingFace(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", file, err, want)
		}
	}
}

// TestShardsBehindLinks: in Hugging Face's cache every file is a link to a folder beside.
func TestShardsBehindLinks(t *testing.T) {
	g, s := shard()
	dir := s.directory(t, g)
	cache := t.TempDir()
	entries, err := os.ReadDir(dir)
	expect.OK(t, err)
	for _, e := range entries {
		expect.OK(t, os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(cache, e.Name())))
	}
	w, err := OpenHuggingFace(cache)
	expect.OK(t, err)
	expect.OK(t, w.Close())
}

// TestShardsSizeIsStale: a size that is not that of the tensors is noted, and the tensors are read. An export has
// the right one.
func TestShardsSizeIsStale(t *testing.T) {
	for _, size := range []string{"1", `"much"`} {
		g, s := shard()
		right := s.size
		s.size = size
		dir, out := s.directory(t, g), t.TempDir()
		w, err := OpenHuggingFace(dir)
		expect.OK(t, err)
		defer w.Close()
		want := []string{filepath.Join(dir, "model.safetensors.index.json") + ": metadata: total_size is " + size + ", the tensors have " + right + " bytes together, and are taken as they are"}
		if !slices.Equal(w.Doubts, want) {
			t.Errorf("doubts %q, want %q", w.Doubts, want)
		}
		expect.OK(t, w.WriteHuggingFace(out, "", nil))
		s.size = right
		if !bytes.Equal(read(t, filepath.Join(out, "model.safetensors.index.json")), s.index()) {
			t.Errorf("the index of size %s is exported as %s", size, read(t, filepath.Join(out, "model.safetensors.index.json")))
		}
	}
}

// A size that another program wrote as a number with a fraction is read.
func TestShardsSizeAsFraction(t *testing.T) {
	g, s := shard()
	s.size += ".0"
	dir, out := s.directory(t, g), t.TempDir()
	expect.OK(t, imported(t, dir).WriteHuggingFace(out, "", nil))
	if !bytes.Equal(read(t, filepath.Join(out, "model.safetensors.index.json")), s.index()) {
		t.Error("the index has changed")
	}
}

func TestShardsRefuses(t *testing.T) {
	const index = `{"metadata":{"total_size":1},"weight_map":{"x":"a.safetensors"}}`
	for _, c := range []struct{ index, want string }{
		{`{"weight_map":{"x":"a.safetensors","x":"b"}}`, `"weight_map": byte 38: key "x" stands twice`},
		{`{"weight_map":{},"weight_map":{}}`, `byte 29: key "weight_map" stands twice`},
		{`{"weight_map":{"x":1}}`, `"weight_map": "x": byte 19: 1: want a string`},
		{`{"weight_map":["a"]}`, `"weight_map": byte 14: want a JSON object`},
		{`{"weight_map":{}}`, "weight_map is missing or empty"},
		{"{\"weight_map\":{\"x\":\"\xff\"}}", "byte 20: not UTF-8"},
		{`{"weight_map":{"x":"` + strings.Repeat("x", 244) + `.safetensors"}}`, `"weight_map": "x": byte 19: file name of 256 bytes: want at most 255`},
		{`{"weight_map":{"x":"config.json"}}`, `"weight_map": "x": byte 19: file name "config.json": want one that ends in .safetensors`},
		{`{"metadata":7,"weight_map":{"x":"a"}}`, `"metadata": byte 12: want a JSON object`},
	} {
		if _, err := parseIndex([]byte(c.index)); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.index, err, c.want)
		}
	}
	for n := range index {
		if _, err := parseIndex([]byte(index[:n])); err == nil {
			t.Errorf("%d of %d bytes are taken for an index", n, len(index))
		}
	}
}

// FuzzShards: an index is refused, or names files that lie beside it.
func FuzzShards(f *testing.F) {
	for _, index := range []string{
		`{"metadata":{"total_size":1},"weight_map":{"x":"b.safetensors","y":"a.safetensors","z":"b.safetensors"}}`,
		`{"weight_map":{"x":"../a"}}`, `{"weight_map":{"x":"a\\b"}}`, `{"weight_map":{"x":"\u002e\u002e/a"}}`,
		`{"weight_map":{"x":""}}`, `{"weight_map":{"x":"a","x":"b"}}`, `{"weight_map":{}}`, `{"weight_map":["a"]}`, "{}", "\xff",
	} {
		f.Add([]byte(index))
	}
	f.Fuzz(func(t *testing.T, index []byte) {
		x, err := parseIndex(index)
		if err != nil {
			return
		}
		names := x.names()
		if len(names) == 0 || !slices.IsSorted(names) {
			t.Errorf("%q: files %q", index, names)
		}
		for _, name := range names {
			if name != filepath.Base(name) || name == "." || name == ".." {
				t.Errorf("%q: %q is no name in the directory", index, name)
			}
		}
	})
}
