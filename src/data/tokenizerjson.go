package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tokenizerFile is the file of Hugging Face's tokenizers.
const tokenizerFile = "tokenizer.json"

// maxTokenizer is the longest tokenizer.json that is read, in bytes: some times Llama 3's.
const maxTokenizer = 64 << 20

// The regular expressions that texts are cut with, as tokenizer.json writes them.
const (
	gpt2Pattern  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llamaPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// tokenizerJSON is a tokenizer as Hugging Face's library writes it: what there is of a
// byte-level byte-pair encoding.
type tokenizerJSON struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"` // of batches, as padding
	Padding       json.RawMessage `json:"padding"`
	Added         []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  *stepJSON       `json:"pre_tokenizer"`
	PostProcessor *stepJSON       `json:"post_processor"`
	Decoder       *stepJSON       `json:"decoder"`
	Model         modelJSON       `json:"model"`
}

// addedToken is a token that stands in a text as it is, whatever is around it.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// stepJSON is a step before or after the model, of any type.
type stepJSON struct {
	Type           string                           `json:"type"`
	AddPrefixSpace *bool                            `json:"add_prefix_space,omitempty"`
	TrimOffsets    bool                             `json:"trim_offsets"`
	UseRegex       *bool                            `json:"use_regex,omitempty"`
	Pretokenizers  []stepJSON                       `json:"pretokenizers,omitempty"`
	Processors     []stepJSON                       `json:"processors,omitempty"`
	Pattern        map[string]string                `json:"pattern,omitempty"`
	Behavior       string                           `json:"behavior,omitempty"`
	Invert         bool                             `json:"invert,omitempty"`
	Single         []map[string]struct{ ID string } `json:"single,omitempty"`
	SpecialTokens  map[string]struct{ IDs []int32 } `json:"special_tokens,omitempty"`
}

type modelJSON struct {
	Type         string          `json:"type"`
	Dropout      *float64        `json:"dropout"`
	Unknown      *string         `json:"unk_token"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	FuseUnknown  bool            `json:"fuse_unk"`
	ByteFallback bool            `json:"byte_fallback"`
	Whole        bool            `json:"ignore_merges"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
}

// parseTokenizer reads tokenizer.json. Errors name the member that is wrong, or that asks
// for what Encode does not do.
func parseTokenizer(text []byte) (*Vocabulary, error) {
	var t tokenizerJSON
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, err
	}
	v := &Vocabulary{End: -1, ids: make(map[string]int32), merges: make(map[[2]int32]merge), whole: t.Model.Whole}
	if err := t.check(); err != nil {
		return nil, err
	}
	var err error
	if v.piece, err = t.PreTokenizer.piece(); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	var ids map[string]int32
	if err := json.Unmarshal(t.Model.Vocab, &ids); err != nil {
		return nil, fmt.Errorf("model: vocab: %w", err)
	}
	if err := v.number(ids, t.Added); err != nil {
		return nil, err
	}
	if err := v.readMerges(ids, t.Model.Merges); err != nil {
		return nil, fmt.Errorf("model: merges: %w", err)
	}
	if v.begin, err = t.PostProcessor.begin(); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if i := slices.IndexFunc(v.begin, func(id int32) bool { return id < 0 || int(id) >= len(v.tokens) }); i >= 0 {
		return nil, fmt.Errorf("post_processor: token %d of %d", v.begin[i], len(v.tokens))
	}
	return v, nil
}

// check refuses what is no byte-level byte-pair encoding, or one that changes texts.
func (t *tokenizerJSON) check() error {
	absent := func(s *string) bool { return s == nil || *s == "" }
	for _, rule := range []struct {
		ok         bool
		name, want string
	}{
		{t.Model.Type == "BPE", "model: type", "BPE"},
		{t.Model.Dropout == nil || *t.Model.Dropout == 0, "model: dropout", "none"},
		{absent(t.Model.Prefix), "model: continuing_subword_prefix", "none"},
		{absent(t.Model.Suffix), "model: end_of_word_suffix", "none"},
		{!t.Model.ByteFallback, "model: byte_fallback", "false"},
		{len(t.Normalizer) == 0 || bytes.Equal(t.Normalizer, []byte("null")), "normalizer", "null"},
		{t.Decoder != nil && t.Decoder.Type == byteLevel, "decoder", byteLevel},
	} {
		if !rule.ok {
			return fmt.Errorf("%s: this one is not supported, want %s", rule.name, rule.want)
		}
	}
	for i, a := range t.Added {
		if a.SingleWord || a.LStrip || a.RStrip || a.Content == "" {
			return fmt.Errorf("added_tokens: %d, %.100q: want a text, and neither single_word nor lstrip nor rstrip, which are not supported", i, a.Content)
		}
	}
	return nil
}

// byteLevel is the type of the steps that spell bytes as letters.
const byteLevel = "ByteLevel"

// piece returns what cuts a text as the step does, which is before the model.
func (s *stepJSON) piece() (func(string) int, error) {
	byPattern := s != nil && s.Type == "Sequence" && len(s.Pretokenizers) == 2 && s.Pretokenizers[0].Type == "Split"
	spelling := s
	if byPattern {
		spelling = &s.Pretokenizers[1]
	}
	switch {
	case spelling == nil || spelling.Type != byteLevel:
		return nil, errors.New("this one is not supported, want ByteLevel, or a Sequence of Split and ByteLevel")
	case spelling.AddPrefixSpace == nil || *spelling.AddPrefixSpace:
		return nil, errors.New("add_prefix_space is not supported, want false")
	case (spelling.UseRegex == nil || *spelling.UseRegex) == byPattern:
		return nil, fmt.Errorf("use_regex: want %v", !byPattern)
	case !byPattern:
		return piece, nil
	}
	cut := s.Pretokenizers[0]
	if cut.Behavior != "Isolated" || cut.Invert {
		return nil, fmt.Errorf("Split: behavior %.100q, invert %v: not supported, want Isolated and false", cut.Behavior, cut.Invert)
	}
	switch cut.Pattern["Regex"] {
	case gpt2Pattern:
		return piece, nil
	case llamaPattern:
		return llamaPiece, nil
	}
	return nil, fmt.Errorf("Split: pattern %.200q is not supported, want the regular expression of GPT-2 or Llama 3", cut.Pattern)
}

// begin returns the tokens that the step, which is behind the model, sets before a text.
func (s *stepJSON) begin() ([]int32, error) {
	if s == nil || s.Type == byteLevel {
		return nil, nil
	}
	var tokens []int32
	switch s.Type {
	case "Sequence":
		for i := range s.Processors {
			more, err := s.Processors[i].begin()
			if err != nil {
				return nil, err
			}
			tokens = append(more, tokens...)
		}
		return tokens, nil
	case "TemplateProcessing":
		last := len(s.Single) - 1
		for i, part := range s.Single {
			special, ok := part["SpecialToken"]
			if ok == (i == last) {
				return nil, errors.New("single: want tokens before the text only, others are not supported")
			}
			tokens = append(tokens, s.SpecialTokens[special.ID].IDs...)
		}
		return tokens, nil
	}
	return nil, fmt.Errorf("type %.100q is not supported, want ByteLevel or TemplateProcessing", s.Type)
}

// number gives every token its id, each below how many there are. Those of ids that spell
// no bytes are only ever added ones.
func (v *Vocabulary) number(ids map[string]int32, added []addedToken) error {
	all := maps.Clone(ids)
	sets := make([][]string, 2) // of texts as they are, and of normalised ones
	v.added = make(map[string]int32)
	for i, a := range added {
		if id, ok := all[a.Content]; ok && id != a.ID {
			return fmt.Errorf("added_tokens: %d, %.100q: id %d, want %d as it has already", i, a.Content, a.ID, id)
		}
		all[a.Content], v.added[a.Content] = a.ID, a.ID
		set := map[bool]int{true: 1}[a.Normalized]
		sets[set] = append(sets[set], a.Content)
	}
	v.sets = slices.DeleteFunc(sets, func(s []string) bool { return len(s) == 0 })
	v.tokens = make([]string, len(all))
	seen := make([]bool, len(all))
	for _, spelt := range slices.Sorted(maps.Keys(all)) {
		id := all[spelt]
		if id < 0 || int(id) >= len(all) || seen[id] {
			return fmt.Errorf("token %.100q has id %d, want each of 0 to %d once", spelt, id, len(all)-1)
		}
		seen[id] = true
		token, spells := unspell(spelt)
		if _, ok := ids[spelt]; ok && spells {
			v.ids[token] = id
		}
		if _, ok := v.added[spelt]; ok {
			token = spelt
		}
		v.tokens[id] = token
	}
	for _, end := range []string{gpt2End, llamaEnd} {
		if id, ok := v.added[end]; ok {
			v.End = id
			break
		}
	}
	return nil
}

// readMerges reads merges, each a pair or, in older files, a pair with a space between.
func (v *Vocabulary) readMerges(ids map[string]int32, source []byte) error {
	var pairs [][]string
	if json.Unmarshal(source, &pairs) != nil {
		var lines []string
		if err := json.Unmarshal(source, &lines); err != nil {
			return err
		}
		pairs = make([][]string, len(lines))
		for i, line := range lines {
			pairs[i] = strings.Split(line, " ")
		}
	}
	taken := make(map[int32]bool) // ids that merges so far join
	for rank, pair := range pairs {
		fail := func(why string) error { return fmt.Errorf("%d: %.100q: %s", rank, pair, why) }
		if len(pair) != 2 {
			return fail("want two tokens")
		}
		a, hasLeft := ids[pair[0]]
		b, hasRight := ids[pair[1]]
		id, has := ids[pair[0]+pair[1]]
		at := [2]int32{a, b}
		_, twice := v.merges[at]
		switch {
		case !hasLeft || !hasRight || !has:
			return fail("want two tokens of the vocabulary that make a third")
		case twice:
			return fail("stands twice")
		case taken[id]:
			return fail("an earlier merge takes what it makes, which is not supported")
		}
		v.merges[at] = merge{rank, id}
		taken[a], taken[b] = true, true
	}
	return nil
}
