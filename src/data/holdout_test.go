package data

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// tokensOf returns the tokens of a corpus.
func tokensOf(c *Corpus) []int32 {
	tokens := make([]int32, c.tokens)
	c.copyTo(tokens, 0)
	return tokens
}

// lettered writes documents of these lengths, each of a letter of its own.
func lettered(t *testing.T, lengths ...int) config.Data {
	files := map[string]string{}
	for i, n := range lengths {
		files[fmt.Sprintf("%02d.txt", i)] = strings.Repeat(string(rune('A'+i)), n)
	}
	return config.Data{Path: expect.Tree(t, files)}
}

// TestHoldOutDocuments: whole documents, near to the share, the same every time; each is
// in one of the two parts.
func TestHoldOutDocuments(t *testing.T) {
	twenty := slices.Repeat([]int{49}, 20) // and the byte between two: 50 tokens each
	for name, c := range map[string]struct {
		lengths []int
		share   float64
		least   float64 // tokens held out
		most    float64
	}{
		"one of twenty":   {twenty, 0.05, 49, 50},
		"five of twenty":  {twenty, 0.25, 249, 250},
		"all but one":     {twenty, 0.95, 949, 950},
		"a huge document": {[]int{9000, 99, 99, 99, 99, 99, 99, 99}, 0.03, 199, 300},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := lettered(t, c.lengths...)
			whole, err := Open(cfg, 256, 1)
			expect.OK(t, err)
			cfg.Validation = fmt.Sprint(c.share)
			got, err := Open(cfg, 256, 1)
			expect.OK(t, err)
			trained, held := tokensOf(got), tokensOf(got.Held())
			if n := float64(len(held)); n < c.least || n > c.most {
				t.Errorf("%v tokens held out, want %v to %v", n, c.least, c.most)
			}
			both := slices.Concat(trained, held)
			slices.Sort(both)
			want := tokensOf(whole)
			if slices.Sort(want); !slices.Equal(both, want) {
				t.Error("the two parts are not the whole")
			}
			for _, letter := range held {
				if letter != 0 && slices.Contains(trained, letter) {
					t.Fatalf("document %c is in both parts", letter)
				}
			}
			again, err := Open(cfg, 256, 1)
			expect.OK(t, err)
			if !slices.Equal(tokensOf(again), trained) || again.Hash() != whole.Hash() {
				t.Error("another time, other documents or another hash")
			}
		})
	}
}

// TestHoldOutTheEnd: where no document brings what is held out nearer to the share, it is
// the end of the corpus.
func TestHoldOutTheEnd(t *testing.T) {
	one := filepath.Join(t.TempDir(), "text")
	expect.OK(t, os.WriteFile(one, []byte(strings.Repeat("a", 75)+strings.Repeat("b", 25)), 0o600))
	for name, cfg := range map[string]config.Data{"one file": {Path: one}, "two long ones": lettered(t, 74, 25)} {
		cfg.Validation = "0.1"
		c, err := Open(cfg, 256, 1)
		expect.OK(t, err)
		want := slices.Repeat([]int32{int32('b')}, 10)
		if name != "one file" {
			want = slices.Repeat([]int32{int32('B')}, 10)
		}
		if got := tokensOf(c.Held()); !slices.Equal(got, want) || c.tokens != 90 {
			t.Errorf("%s: %v held out, %d left", name, got, c.tokens)
		}
	}
}

// TestHoldOutTokens: documents come from Megatron-LM's index. In llm.c's files an end-of-text token
// ends a document. Without such tokens the end of the corpus is held out.
func TestHoldOutTokens(t *testing.T) {
	documents, ended := make([][]int32, 10), make([][]int32, 10)
	for i := range documents {
		documents[i] = slices.Repeat([]int32{int32(i + 1)}, 20)
		ended[i] = append(slices.Repeat([]int32{int32(i + 1)}, 19), GPT2End)
	}
	for name, c := range map[string]struct {
		path  string
		whole bool
	}{
		"megatron":       {write(t, Megatron, 50257, documents...), true},
		"llm.c":          {write(t, LLMC, 50257, ended...), true},
		"llm.c, no ends": {write(t, LLMC, 50257, documents...), false},
	} {
		got, err := Open(config.Data{Path: c.path, Validation: "0.3"}, 50257, 4)
		expect.OK(t, err)
		held := tokensOf(got.Held())
		for i := 0; i < len(held); i += 20 {
			if part := slices.Compact(slices.Clone(held[i : i+19])); len(part) != 1 {
				t.Errorf("%s: held out %v", name, held)
			}
		}
		if end := slices.Equal(held[:1], []int32{8}) && held[59] == 10; len(held) != 60 || got.tokens != 140 || end == c.whole {
			t.Errorf("%s: held out %v, %d left", name, held, got.tokens)
		}
	}
}

// TestTrainingDrawsFromTheRest: sequences of steps have no token that is held out, and
// other validation data change none of them.
func TestTrainingDrawsFromTheRest(t *testing.T) {
	cfg := lettered(t, slices.Repeat([]int{30}, 20)...)
	whole, err := Open(cfg, 256, 8)
	expect.OK(t, err)
	other := cfg
	cfg.Validation, other.Validation = "0.3", lettered(t, 30, 30).Path
	c, err := Open(cfg, 256, 8)
	expect.OK(t, err)
	beside, err := Open(other, 256, 8)
	expect.OK(t, err)
	held := tokensOf(c.Held())
	held = slices.DeleteFunc(held, func(id int32) bool { return id == 0 })
	batches, plain, same := c.Batches(4, 8), whole.Batches(4, 8), beside.Batches(4, 8)
	for step := range 200 {
		tokens, targets := batches.Read(1, step, 0)
		for i, id := range targets {
			if slices.Contains(held, id) || slices.Contains(held, tokens[i]) {
				t.Fatalf("step %d: token %c or target %c is held out", step, tokens[i], id)
			}
			if next := i + 1; next%8 > 0 && tokens[next] != id {
				t.Fatalf("step %d: target %d is not the next token", step, i)
			}
		}
		a, _ := plain.Read(1, step, 0)
		if b, _ := same.Read(1, step, 0); !slices.Equal(a, b) {
			t.Fatalf("step %d: validation data elsewhere change the samples", step)
		}
	}
	if n := testing.AllocsPerRun(10, func() { batches.Read(1, 2, 3) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestEven: microbatches of validation lie evenly over the data, to their last token.
func TestEven(t *testing.T) {
	starts := func(tokens, of, size, sequence int) (list []int32) {
		b := counting(tokens).Batches(size, sequence)
		for m := range of {
			ids, targets := b.Even(m, of)
			for i := 0; i < len(ids); i += sequence {
				list = append(list, ids[i])
			}
			if m == of-1 && int(targets[len(targets)-1]) != tokens-1 {
				t.Errorf("%d tokens: the last target is %d", tokens, targets[len(targets)-1])
			}
		}
		return list
	}
	for name, c := range map[string]struct {
		tokens, of, size, sequence int
		want                       []int32
	}{
		"just full":  {25, 3, 2, 4, []int32{0, 4, 8, 12, 16, 20}},
		"with gaps":  {100, 2, 2, 9, []int32{0, 30, 60, 90}},
		"too little": {6, 2, 2, 4, []int32{0, 0, 0, 1}},
		"the least":  {5, 1, 3, 4, []int32{0, 0, 0}},
	} {
		if got := starts(c.tokens, c.of, c.size, c.sequence); !slices.Equal(got, c.want) {
			t.Errorf("%s: sequences start at %v, want %v", name, got, c.want)
		}
	}
	if ids, _ := counting(256).Batches(1, 4).Even(0, 1); ids[0] != 0 {
		t.Errorf("a single sequence starts at %d", ids[0])
	}
}

func TestValidationErrors(t *testing.T) {
	dir := expect.Tree(t, map[string]string{"a.txt": strings.Repeat("a", 100), "short.txt": "1234", "other/b.go": "b"})
	in := func(name string) string { return filepath.Join(dir, name) }
	tokens, large := write(t, LLMC, 50257, slices.Repeat([]int32{9}, 40)), write(t, LLMC, 50257, slices.Repeat([]int32{50256}, 40))
	for name, c := range map[string]struct {
		path, validation, want string
	}{
		"its own data":     {in("a.txt"), in("a.txt"), `data: data.validation = "DIR/a.txt" is data.path, on which the run trains: wanted other data, or the share to hold out, such as 0.05`},
		"missing":          {in("a.txt"), in("none"), `data: data.validation = "DIR/none": no such file or directory`},
		"too short":        {in("a.txt"), in("short.txt"), `data: data.validation = "DIR/short.txt": wanted at least 9 bytes, a sequence (model.sequence = 8) and the token after it; found 4 bytes in 1 file(s)`},
		"no such ending":   {in("a.txt"), in("other"), `data: data.validation = "DIR/other": wanted at least 9 bytes, a sequence (model.sequence = 8) and the token after it; found no text in files ending in .txt (data.extensions; [] reads every file)`},
		"ids too large":    {tokens, large, `data: data.validation: LARGE: byte 1024: id 50256 of token 0, want 0 to 999 (model.vocab = 1000): the largest id here is 50256, so set model.vocab to the vocabulary of the tokens' tokenizer, at least 50257`},
		"tokens for text":  {in("a.txt"), tokens, `data: data.validation = "TOKENS": a token file, and data.path is text, whose bytes are the tokens: wanted tokens of one vocabulary (dynmo data prepare)`},
		"text for tokens":  {tokens, in("a.txt"), `data: data.validation = "DIR/a.txt": text, whose bytes are the tokens, and data.path is a token file: wanted tokens of one vocabulary (dynmo data prepare)`},
		"little held out":  {in("a.txt"), "0.08", `data: data.validation = 0.08: wanted at least 9 tokens, a sequence (model.sequence = 8) and the token after it; of the 100 tokens of data.path = "DIR/a.txt", 8 are held out`},
		"little left":      {in("a.txt"), "0.92", `data: data.validation = 0.92: wanted at least 9 tokens, a sequence (model.sequence = 8) and the token after it; of the 100 tokens of data.path = "DIR/a.txt", 8 are left to train on`},
		"wrong training":   {in("none"), "0.5", `data: data.path = "DIR/none": no such file or directory`},
		"as little as can": {in("a.txt"), "0.09", ""},
	} {
		_, err := Open(config.Data{Path: c.path, Validation: c.validation, Extensions: []string{".txt"}}, 1000, 8)
		got := ""
		if err != nil {
			got = strings.NewReplacer(dir, "DIR", tokens, "TOKENS", large, "LARGE").Replace(err.Error())
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestHoldOutManyDocuments: of many documents of any length what is held out is the share
// to within one of them.
func TestHoldOutManyDocuments(t *testing.T) {
	lengths := make([]int32, 5000)
	for i := range lengths {
		lengths[i] = int32(1 + i*i%97)
	}
	total := int32(0)
	for _, n := range lengths {
		total += n
	}
	x := ids{make([]byte, 2*total), u16}
	s := source{key: "data.path", sequence: 1, tokens: []*Tokens{{Format: Megatron, ids: x, index: megatronIdx(u16, lengths)}}}
	c := newCorpus(content{newPart(x)}, func() error { return nil })
	expect.OK(t, s.holdOut(c, 0.01))
	if off := math.Abs(float64(c.Held().tokens) - 0.01*float64(total)); off > 50 {
		t.Errorf("off by %v tokens", off)
	}
	if n := len(c.Held().extents); n < 20 {
		t.Errorf("%d parts, want documents from all over", n)
	}
}
