package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"dynmo/src/data"
	"dynmo/src/expect"
)

// trainedPieces trains a byte-pair encoding on a random text, as spm_train does: the most frequent
// pair of neighbours becomes a piece, with a lower score than all pieces before it. Characters come
// last.
func trainedPieces(rnd *rand.Rand, alphabet []string) []spPiece {
	var parts []string
	for range 80 {
		parts = append(parts, alphabet[rnd.IntN(len(alphabet))])
	}
	list, known := specialPieces(), map[string]bool{}
	add := func(text string) {
		if !known[text] {
			known[text] = true
			list = append(list, spPiece{text, -float32(len(list)), 0})
		}
	}
	for range 3 + rnd.IntN(20) {
		count, best := map[string]int{}, ""
		for i := range len(parts) - 1 {
			pair := parts[i] + parts[i+1]
			if count[pair]++; count[pair] > count[best] || count[pair] == count[best] && pair < best {
				best = pair
			}
		}
		if best == "" {
			break
		}
		add(best)
		for i := 0; i+1 < len(parts); i++ {
			if parts[i]+parts[i+1] == best {
				parts = slices.Replace(parts, i, i+2, best)
			}
		}
	}
	for _, letter := range alphabet {
		add(letter)
	}
	return list
}

// The tokenizer.json of a model has the ids of the model, for models as spm_train makes them.
func TestAddTokenizerJSONHasTheModelsIDs(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for i := range 2000 {
		alphabet := []string{"a", "▁", "b", "é"}[:1+i%4]
		raw := spModel(trainedPieces(rnd, alphabet), pbBytes(3, pbNumber(3, uint64(i/4%2))))
		v, err := parsePieceVocabulary("m", raw)
		expect.OK(t, err)
		files, note, err := v.AddTokenizerJSON(map[string][]byte{data.PieceFile: raw}, 8)
		expect.OK(t, err)
		again, err := ParseTokenizer("", files)
		if err != nil || note != "" {
			t.Fatalf("note %q, error %v", note, err)
		}
		if again.End != v.End || again.Begin() != v.Begin() || again.Size() != v.Size() || again.strips != v.strips {
			t.Fatalf("ends with %d, begins with %d, of %d", again.End, again.Begin(), again.Size())
		}
		for range 20 {
			var b strings.Builder
			for range rnd.IntN(40) {
				b.WriteString([]string{"a", " ", "b", "é", "<s>", "<unk>", "中"}[rnd.IntN(7)&rnd.IntN(8)])
			}
			want, err := v.Prompt(b.String())
			expect.OK(t, err)
			if got, err := again.Prompt(b.String()); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%q, pieces %v: %v, want %v (%v)", b.String(), v.pieces.spelt[259:], got, want, err)
			}
		}
	}
}

// A model without exact tokenizer.json gets none, and the note says why.
func TestAddTokenizerJSONRefuses(t *testing.T) {
	for _, c := range []struct {
		list []spPiece
		want string
	}{
		{[]spPiece{{"a", 0, 0}, {"b", 0, 0}, {"ab", -1, 0}, {"ba", -1, 0}}, `pieces 261, "ab", and 262, "ba", have the same score`},
		{[]spPiece{{"a", 0, 0}, {"ab", -1, 0}}, `piece 260, "ab", has a character that is no piece`},
		{[]spPiece{{"a", 0, 4}}, `piece 259, "a", is user-defined`},
	} {
		raw := spModel(append(specialPieces(), c.list...))
		v, err := parsePieceVocabulary("m", raw)
		expect.OK(t, err)
		files, note, err := v.AddTokenizerJSON(map[string][]byte{data.PieceFile: raw}, 8)
		if want := fmt.Sprintf("without tokenizer.json: %s: other programs may give other ids", c.want); err != nil || note != want || len(files) != 1 {
			t.Errorf("%d files, note %q, want %q (%v)", len(files), note, want, err)
		}
	}
}

// The ids are those of transformers 5.12.1 with tokenizers 0.23.1: AutoTokenizer in a directory
// with config.json of a LLaMA and the files that AddTokenizerJSON makes of testdata/llama.
func TestAddTokenizerJSONPublishedIDs(t *testing.T) {
	raw, err := os.ReadFile("testdata/llama/tokenizer.model")
	expect.OK(t, err)
	const llamaSettings = `{"tokenizer_class": "LlamaTokenizer", "legacy": false, "model_max_length": 1000000000000000019884624838656}`
	unprefixed := append(slices.Clip(raw), pbBytes(3, pbNumber(3, 0))...)
	for _, c := range []struct {
		raw  []byte
		text string
		want []int32
	}{
		{raw, "", []int32{1}},
		{raw, " the layers", []int32{1, 480, 269, 452}},
		{raw, "the<s>the </s> x", []int32{1, 269, 1, 269, 480, 2, 273, 510}},
		{raw, "<unk>é\n", []int32{1, 0, 480, 198, 172, 13}},
		{raw, "▁a  ▁", []int32{1, 480, 260, 273, 480}},
		{unprefixed, " the layers", []int32{1, 269, 452}},
		{unprefixed, "the<s>the </s> x", []int32{1, 482, 261, 1, 482, 261, 480, 2, 480, 510}},
	} {
		files := map[string][]byte{data.PieceFile: c.raw, data.SettingsFile: []byte(llamaSettings)}
		v, err := ParseTokenizer("", files)
		expect.OK(t, err)
		all, note, err := v.AddTokenizerJSON(files, 8)
		expect.OK(t, err)
		again, err := ParseTokenizer("", all)
		expect.OK(t, err)
		for name, v := range map[string]*Vocabulary{"model": v, "tokenizer.json": again} {
			if got, err := v.Prompt(c.text); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: %q: %v, want %v (%v)", name, c.text, got, c.want, err)
			}
		}
		settings := strings.Join(strings.Fields(string(all[data.SettingsFile])), " ")
		if want := strings.Replace(`{ "legacy": false, "model_max_length": 1000000000000000019884624838656, "tokenizer_class": "X" }`, "X", tokenizersClass, 1); settings != want || note == "" {
			t.Errorf("%s, want %s; note %q", settings, want, note)
		}
	}
}
