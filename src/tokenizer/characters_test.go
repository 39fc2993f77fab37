package tokenizer

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"dynmo/src/expect"
)

// Spaces in tokenizer.json of LLaMA 2 and Mixtral are set by a normalizer in older files, by
// Metaspace in newer ones.
const (
	prepends  = `{"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}`
	metaspace = `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}`
	always    = `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false}`
	strips    = `{"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}`
	llamaPost = `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
		"special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}`
	llamaAdded = `[{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true, "normalized": true}]`
)

// charactersText returns tokenizer.json of the pieces of a sentencepiece model, as Hugging
// Face's converter makes it: a merge for each way in which two pieces make a third, in the
// order of the third's score. Members are set to JSON by their names.
func charactersText(t testing.TB, list []spPiece, set map[string]string) []byte {
	t.Helper()
	vocab := make(map[string]int)
	for id, p := range list {
		vocab[p.text] = id
	}
	type made struct {
		pair  []string
		score float32
	}
	var merges []made
	for _, p := range list {
		for i := range p.text {
			_, left := vocab[p.text[:i]]
			if _, right := vocab[p.text[i:]]; left && right && p.kind == 0 {
				merges = append(merges, made{[]string{p.text[:i], p.text[i:]}, p.score})
			}
		}
	}
	slices.SortStableFunc(merges, func(a, b made) int { return int(b.score - a.score) })
	pairs := [][]string{}
	for _, m := range merges {
		pairs = append(pairs, m.pair)
	}
	all := map[string]any{
		"model": map[string]any{"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": pairs},
	}
	members := map[string]string{"normalizer": prepends, "decoder": strips, "post_processor": llamaPost, "added_tokens": llamaAdded}
	maps.Copy(members, set)
	for name, source := range members {
		all[name] = json.RawMessage(source)
	}
	text, err := json.Marshal(all)
	expect.OK(t, err)
	return text
}

// LLaMA 2's tiny twin: merges are worked out by hand as in TestSentencePieceKnownIDs, and
// spaces as tokenizers 0.20 sets them: the normalizer's before every part between two added
// tokens, Metaspace's where a part (always), or the text (first), begins with none.
func TestCharactersKnownIDs(t *testing.T) {
	const bytes = 3
	byMetaspace := map[string]string{"normalizer": "null", "pre_tokenizer": metaspace}
	everywhere := map[string]string{"normalizer": "null", "pre_tokenizer": always}
	kept := map[string]string{"added_tokens": strings.Replace(llamaAdded, `]`, `, {"id": 265, "content": "<sep>"}]`, 1)}
	list := append(specialPieces(), tinyPieces...)
	for _, c := range []struct {
		set  map[string]string
		text string
		want []int32 // behind the token that begins texts
	}{
		{nil, "the", []int32{261}},
		{nil, "there", []int32{261, 270, 269}},
		{nil, "her", []int32{266, 260, 270}},
		{nil, "ter", []int32{259, 263}},
		{nil, "  the", []int32{262, 261}},
		{nil, "\n", []int32{266, bytes + 10}},
		{nil, "é", []int32{266, bytes + 0xc3, bytes + 0xa9}},
		{nil, "", nil},
		{nil, "the<s>the", []int32{261, 1, 261}},
		{nil, "the</s>", []int32{261, bytes + '<', bytes + '/', bytes + 's', bytes + '>'}}, // a normalized token is ▁</s> here
		{nil, "the </s>", []int32{261, 2}},
		{kept, "t<sep>t", []int32{259, 265, 259}},
		{byMetaspace, "the", []int32{261}},
		{byMetaspace, "  the", []int32{266, 261}},
		{byMetaspace, "the<s>the", []int32{261, 1, 267, 260}},
		{byMetaspace, "the</s> the", []int32{261, 2, 261}},
		{everywhere, "the<s>the", []int32{261, 1, 261}},
	} {
		v, err := parseTokenizer(charactersText(t, list, c.set))
		expect.OK(t, err)
		if got, err := v.Prompt(c.text); err != nil || !slices.Equal(got, append([]int32{1}, c.want...)) {
			t.Errorf("%v: %q: %v, want 1 and %v (%v)", c.set, c.text, got, c.want, err)
		}
		if v.End != 2 || v.Size() != 271 || v.Text(261) != " the" || v.Opening(261) != "the" || v.Text(1) != "<s>" || v.Text(bytes+0xc3) != "\xc3" {
			t.Errorf("ends with %d of %d; %q, %q, %q, %q", v.End, v.Size(), v.Text(261), v.Opening(261), v.Text(1), v.Text(bytes+0xc3))
		}
	}
}

// decoded encodes a text and returns the text of its tokens, without the tokens before it.
func decoded(v *Vocabulary, tokens []int32) string {
	var b strings.Builder
	for i, token := range tokens[len(v.begin):] {
		if i == 0 {
			b.WriteString(v.Opening(token))
		} else {
			b.WriteString(v.Text(token))
		}
	}
	return b.String()
}

// Encoding and decoding any text gives the text again, with tokenizer.json and with sentencepiece's
// model. Both give the same tokens.
func TestCharactersComeBack(t *testing.T) {
	list := gpt2Pieces(t)[:4000]
	v, err := parseTokenizer(charactersText(t, list, nil))
	expect.OK(t, err)
	pieces, err := parsePieceVocabulary("m", spModel(list))
	expect.OK(t, err)
	for _, text := range append(slices.Clone(texts), " a", "<0x0A>", "\u2581", "e\u0301") {
		if text = strings.ToValidUTF8(text, "?"); strings.Contains(text, marked) {
			continue // it is a space
		}
		tokens, err := v.Prompt(text)
		expect.OK(t, err)
		other, err := pieces.Prompt(text)
		expect.OK(t, err)
		if !slices.Equal(tokens, other) {
			t.Errorf("%q: %v, of the model %v", text, tokens, other)
		}
		if back, again := decoded(v, tokens), decoded(pieces, tokens); back != text || again != text {
			t.Errorf("%q comes back as %q and %q", text, back, again)
		}
	}
}

// dumbMerges makes merges by the definition: of all neighbours those of the lowest rank, the
// first of equals, until there are none.
func dumbMerges(v *Vocabulary, ids []int32) []int32 {
	for {
		best := -1
		for i := range len(ids) - 1 {
			m, ok := v.merges[[2]int32{ids[i], ids[i+1]}]
			if ok && (best < 0 || m.rank < v.merges[[2]int32{ids[best], ids[best+1]}].rank) {
				best = i
			}
		}
		if best < 0 {
			return ids
		}
		ids = slices.Replace(ids, best, best+2, v.merges[[2]int32{ids[best], ids[best+1]}].id)
	}
}

// Vocabularies of all kinds: a text encoded piece by piece, and cut in two, has the ids of the
// definition. In some vocabularies an earlier merge takes the result of a later one.
func TestCharactersAgreeWithTheDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	alphabet := []string{"a", "▁", "b", "é", "\n", "中"}
	for range 200 {
		list := randomPieces(rnd, alphabet)
		v, err := parseTokenizer(charactersText(t, list, nil))
		expect.OK(t, err)
		x, err := v.Tokenizer()
		expect.OK(t, err)
		var text strings.Builder
		for range 1 + rnd.IntN(60) {
			text.WriteString(strings.ReplaceAll(alphabet[rnd.IntN(len(alphabet))], "▁", " "))
		}
		whole := " " + text.String()
		want := dumbMerges(v, v.letters(whole))
		if got, err := v.Prompt(text.String()); err != nil || !slices.Equal(got[1:], want) {
			t.Fatalf("%q, pieces %v: %v, want %v; %v", whole, list[259:], got[1:], want, err)
		}
		at, e := x.cut([]byte(whole), 0), x.encoder()
		got, err := e.encode(nil, whole[:at])
		if err == nil {
			got, err = e.encode(got, whole[at:])
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q cut at %d, pieces %v: %v, want %v; %v", whole, at, list[259:], got, want, err)
		}
	}
}

func TestCharactersRefuses(t *testing.T) {
	list := append(specialPieces(), tinyPieces...)
	for _, c := range []struct{ name, value, want string }{
		{"normalizer", `{"type": "NFC"}`, "normalizer: NFC: this one is not supported, want Prepend"},
		{"normalizer", `{"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}]}`, "normalizer: Prepend: this one is not supported"},
		{"normalizer", `null`, "pre_tokenizer: this one is not supported, want null behind a normalizer"},
		{"pre_tokenizer", metaspace, "pre_tokenizer: this one is not supported"},
		{"decoder", `null`, "decoder: this one is not supported, want a Sequence of Replace"},
		{"decoder", strings.Replace(strips, `"start": 1`, `"start": 2`, 1), `decoder: Strip: content " ", start 2, stop 0: not supported`},
	} {
		if _, err := parseTokenizer(charactersText(t, list, map[string]string{c.name: c.value})); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s %s: error %v, want %q", c.name, c.value, err, c.want)
		}
	}
	if _, err := parseTokenizer(charactersText(t, list, map[string]string{"normalizer": "null", "pre_tokenizer": strings.Replace(metaspace, "first", "last", 1)})); err == nil ||
		err.Error() != `pre_tokenizer: prepend_scheme "last" is not supported, want always, first or never` {
		t.Errorf("error %v", err)
	}
	if _, err := parseTokenizer(charactersText(t, slices.Delete(slices.Clone(list), 258, 259), nil)); err == nil || !strings.HasPrefix(err.Error(), "model: vocab: no token <0xFF>") {
		t.Errorf("error %v", err)
	}
}

// The settings in a directory name the token that ends texts. For sentencepiece's model they also
// say which token begins texts. A file may be of either kind.
func TestOpenVocabularyOfLlama(t *testing.T) {
	list := append(specialPieces(), tinyPieces...)
	for _, c := range []struct {
		file, settings string
		want           []int32 // of "the"
		end            int32
	}{
		{"tokenizer.json", "", []int32{1, 261}, 2},
		{"tokenizer.json", `{"eos_token": "<s>", "add_bos_token": false}`, []int32{1, 261}, 1},
		{"tokenizer.json", `{"eos_token": {"content": "<unk>"}}`, []int32{1, 261}, 0},
		{"tokenizer.model", "", []int32{1, 261}, 2},
		{"tokenizer.model", `{"eos_token": null, "add_bos_token": false, "add_eos_token": true}`, []int32{261}, 2},
	} {
		dir := t.TempDir()
		text := map[string][]byte{"tokenizer.json": charactersText(t, list, nil), "tokenizer.model": tinyModel()}[c.file]
		expect.OK(t, os.WriteFile(filepath.Join(dir, c.file), text, 0o600))
		if c.settings != "" {
			expect.OK(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(c.settings), 0o600))
		}
		v, err := OpenVocabulary(dir)
		expect.OK(t, err)
		if got, err := v.Prompt("the"); err != nil || !slices.Equal(got, c.want) || v.End != c.end {
			t.Errorf("%s %s: %v, end %d, want %v, %d (%v)", c.file, c.settings, got, v.End, c.want, c.end, err)
		}
		alone, err := OpenVocabulary(filepath.Join(dir, c.file))
		if err != nil || alone.Size() != v.Size() {
			t.Errorf("%s alone: %v", c.file, err)
		}
	}
	dir := t.TempDir()
	expect.OK(t, os.WriteFile(filepath.Join(dir, "tokenizer.model"), tinyModel(), 0o600))
	expect.OK(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(`{"eos_token": "<end>"}`), 0o600))
	if _, err := OpenVocabulary(dir); err == nil || err.Error() != dir+`/tokenizer_config.json: eos_token: "<end>" is no token of the vocabulary` {
		t.Errorf("error %v", err)
	}
}

// Tokenizers whose documents could have tokens that are no markup are refused, and so are
// tokenizers without an end token.
func TestTokenizerOfVocabulary(t *testing.T) {
	list := append(specialPieces(), tinyPieces...)
	v, err := parseTokenizer(charactersText(t, list, map[string]string{"added_tokens": `[{"id": 265, "content": "<sep>"}]`}))
	expect.OK(t, err)
	if _, err := v.Tokenizer(); err == nil || !strings.HasPrefix(err.Error(), "no token that ends texts") {
		t.Errorf("error %v", err)
	}
	v.End = 2
	if _, err := v.Tokenizer(); err == nil || !strings.HasPrefix(err.Error(), `added_tokens: "<sep>" is not special`) {
		t.Errorf("error %v", err)
	}
}

// FuzzCharacters: a text comes back from its tokens.
func FuzzCharacters(f *testing.F) {
	v, err := parseTokenizer(charactersText(f, append(specialPieces(), tinyPieces...), map[string]string{"added_tokens": "[]"}))
	expect.OK(f, err)
	for _, text := range []string{"the other", "  \n\té 中", "t<sep>t", strings.Repeat(" ", 70), ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || strings.Contains(text, marked) {
			return
		}
		tokens, err := v.Prompt(text)
		if back := decoded(v, tokens); err != nil || back != text {
			t.Fatalf("%q comes back as %q (%v)", text, back, err)
		}
	})
}

// testdata/llama has a sentencepiece model of README.md (spm_train 0.1.97: bpe, 560 pieces, byte
// fallback, digits apart, identity, spaces kept). tokenizer.json is made from the model by Hugging
// Face's converter (convert_slow_tokenizer.py, LlamaConverter). The ids are those of
// @huggingface/tokenizers 0.2.0, equal to those of spm_encode with bos for every text.
func TestCharactersPublishedIDs(t *testing.T) {
	lines, err := os.ReadFile("testdata/llama/ids.jsonl")
	expect.OK(t, err)
	for _, name := range []string{"tokenizer.json", "tokenizer.model"} {
		v, err := OpenVocabulary("testdata/llama/" + name)
		expect.OK(t, err)
		for line := range strings.Lines(string(lines)) {
			var c struct {
				Text string
				IDs  []int32
			}
			expect.OK(t, json.Unmarshal([]byte(line), &c))
			if got, err := v.Prompt(c.Text); err != nil || !slices.Equal(got, c.IDs) || decoded(v, got) != c.Text {
				t.Errorf("%s: %q: %v, want %v (%v)", name, c.Text, got, c.IDs, err)
			}
		}
	}
}
