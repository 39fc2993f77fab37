package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dynmo/src/files"
)

// tokenizerJSON is a tokenizer in the format of Hugging Face's library, with the members that a
// byte-pair encoding has.
type tokenizerJSON struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"` // of batches, as padding
	Padding       json.RawMessage `json:"padding"`
	Added         []addedToken    `json:"added_tokens"`
	Normalizer    *stepJSON       `json:"normalizer"`
	PreTokenizer  *stepJSON       `json:"pre_tokenizer"`
	PostProcessor *stepJSON       `json:"post_processor"`
	Decoder       *stepJSON       `json:"decoder"`
	Model         modelJSON       `json:"model"`
}

// addedToken is a token that is found in a text by its exact spelling.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// stepJSON is a step of any type, before or after the model.
type stepJSON struct {
	Type           string                           `json:"type"`
	Normalizers    []stepJSON                       `json:"normalizers,omitempty"`
	Decoders       []stepJSON                       `json:"decoders,omitempty"`
	Prepend        string                           `json:"prepend,omitempty"`
	Content        string                           `json:"content,omitempty"`
	Start          int                              `json:"start,omitempty"`
	Stop           int                              `json:"stop,omitempty"`
	Replacement    string                           `json:"replacement,omitempty"`
	PrependScheme  *string                          `json:"prepend_scheme,omitempty"`
	Split          *bool                            `json:"split,omitempty"`
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

// parseTokenizer reads tokenizer.json. Errors name the member that is wrong, or that needs
// something that Encode lacks.
func parseTokenizer(text []byte) (*Vocabulary, error) {
	var t tokenizerJSON
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, files.Mistyped(err)
	}
	v := &Vocabulary{End: -1, ids: make(map[string]int32), merges: make(map[[2]int32]merge), whole: t.Model.Whole}
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := t.steps(v); err != nil {
		return nil, err
	}
	ids, err := readIDs(t.Model.Vocab)
	if err != nil {
		return nil, fmt.Errorf("model: vocab: %w", err)
	}
	all, err := withAdded(ids, t.Added)
	if err != nil {
		return nil, err
	}
	if err := v.number(ids, all, t.Added, t.Model.ByteFallback); err != nil {
		return nil, err
	}
	if err := v.readMerges(ids, t.Model.Merges); err != nil {
		return nil, fmt.Errorf("model: merges: %w", err)
	}
	if v.begin, err = t.PostProcessor.begin(); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	for _, id := range v.begin {
		if id < 0 || int(id) >= len(v.tokens) {
			return nil, fmt.Errorf("post_processor: token %d of %d", id, len(v.tokens))
		}
	}
	return v, nil
}

// readIDs reads the ids of tokens. Errors name the token.
func readIDs(text []byte) (map[string]int32, error) {
	var all map[string]int64
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, files.Mistyped(err)
	}
	ids := make(map[string]int32, len(all))
	for _, token := range slices.Sorted(maps.Keys(all)) {
		if id := all[token]; id < 0 || id >= maxPieces {
			return nil, wrongID(token, id)
		}
		ids[token] = int32(all[token])
	}
	return ids, nil
}

// wrongID returns the error of a token's id that is out of range, or is that of another token too.
func wrongID(token string, id int64) error {
	return fmt.Errorf("token %.100q has id %d, want each id at most once, from 0 to %d", token, id, maxPieces-1)
}

// check returns an error unless this is a byte-pair encoding of bytes, or of characters with a
// token for every byte. An encoding that changes texts is an error too.
func (t *tokenizerJSON) check() error {
	if t.Model.Type != "BPE" {
		return fmt.Errorf("model: type %.100q is not supported, want BPE", t.Model.Type)
	}
	absent := func(s *string) bool { return s == nil || *s == "" }
	for _, rule := range []struct {
		ok         bool
		name, want string
	}{
		{t.Model.Dropout == nil || *t.Model.Dropout == 0, "model: dropout", "none"},
		{absent(t.Model.Prefix), "model: continuing_subword_prefix", "none"},
		{absent(t.Model.Suffix), "model: end_of_word_suffix", "none"},
		{!t.Model.ByteFallback || !t.Model.Whole, "model: ignore_merges", "false where byte_fallback is true"},
	} {
		if !rule.ok {
			return fmt.Errorf("%s: this one is not supported, want %s", rule.name, rule.want)
		}
	}
	return nil
}

// check returns an error if texts cannot be searched for a token.
func (a addedToken) check() error {
	if a.SingleWord || a.LStrip || a.RStrip || a.Content == "" {
		return fmt.Errorf("%d, %.100q: want a text, and neither single_word nor lstrip nor rstrip, which are not supported", a.ID, a.Content)
	}
	return nil
}

// withAdded returns the ids of a vocabulary and of added tokens. Hugging Face's tokenizers ignore the
// id of an added token that the vocabulary lacks. They number these tokens on, from the number of
// tokens in the vocabulary. Any other id is refused.
func withAdded(ids map[string]int32, added []addedToken) (map[string]int32, error) {
	all := make(map[string]int32)
	maps.Copy(all, ids)
	for i, a := range added {
		id, ok := all[a.Content]
		if err := a.check(); err != nil {
			return nil, fmt.Errorf("added_tokens: %w", err)
		}
		switch {
		case ok && id != a.ID:
			return nil, fmt.Errorf("added_tokens: %d, %.100q: id %d, want %d as it has already", i, a.Content, a.ID, id)
		case !ok && int(a.ID) != len(all):
			return nil, fmt.Errorf("added_tokens: %d, %.100q: id %d, want %d as tokenizers number it, or the token in the vocabulary", i, a.Content, a.ID, len(all))
		}
		all[a.Content] = a.ID
	}
	return all, nil
}

// number gives every token its id. all has the ids of the vocabulary and of added tokens. Some ids may
// have no token. In an encoding of bytes, a token that does not spell bytes must be an added token.
func (v *Vocabulary) number(ids, all map[string]int32, added []addedToken, characters bool) error {
	contents := make(map[string]bool)
	for _, a := range added {
		contents[a.Content] = true
		v.search(a)
	}
	seen := make(map[int32]bool)
	for _, spelt := range slices.Sorted(maps.Keys(all)) {
		id := all[spelt]
		if id < 0 || id >= maxPieces || seen[id] {
			return wrongID(spelt, int64(id))
		}
		seen[id] = true
		v.tokens = append(v.tokens, make([]string, max(0, int(id)+1-len(v.tokens)))...)
		token, spells := unspell(spelt)
		if characters {
			token, spells = strings.ReplaceAll(spelt, marked, " "), true
		}
		if _, ok := ids[spelt]; ok && spells {
			v.ids[map[bool]string{true: spelt, false: token}[characters]] = id
		}
		if contents[spelt] {
			token = spelt
		}
		v.tokens[id] = token
	}
	for _, end := range []string{gpt2End, llamaEnd, pieceEnd} {
		if contents[end] {
			v.End = all[end]
			break
		}
	}
	if characters {
		return v.numberBytes()
	}
	return nil
}

// search registers an added token that texts are searched for. A token that is registered already gets
// its new properties, but stays special, as in tokenizers 0.23.1.
func (v *Vocabulary) search(a addedToken) {
	if known, ok := v.added[a.ID]; ok {
		in, spelling := v.spellings(known)
		in.set(spelling, nil)
		a.Special = a.Special || known.Special
	}
	if v.added == nil {
		v.added = make(map[int32]addedToken)
	}
	v.added[a.ID] = a
	in, spelling := v.spellings(a)
	in.set(spelling, &a)
}

// spellings returns the spelling of an added token in the texts that are searched, and the tree for
// it.
func (v *Vocabulary) spellings(a addedToken) (in *spellings, spelling string) {
	if !a.Normalized {
		return &v.raw, a.Content
	}
	spelling = a.Content
	if v.composes {
		spelling = nfc(spelling)
	}
	if v.escapes { // as in the text at the time of the search
		spelling = strings.ReplaceAll(v.leads.before(spelling, 0)+spelling, " ", marked)
	}
	return &v.normal, spelling
}

// numberBytes finds the tokens of bytes, which encode characters without a token. No merge has such
// a token.
func (v *Vocabulary) numberBytes() error {
	v.bytes = make([]int32, 256)
	for b := range v.bytes {
		spelt := fmt.Sprintf("<0x%02X>", b)
		id, ok := v.ids[spelt]
		if !ok {
			return fmt.Errorf("model: vocab: no token %s: want one of each byte, since byte_fallback is true", spelt)
		}
		v.bytes[b], v.tokens[id] = id, string([]byte{byte(b)})
	}
	return nil
}

// readMerges reads merges. Each is a pair or, in older files, two tokens with a space between them.
func (v *Vocabulary) readMerges(ids map[string]int32, source []byte) error {
	var pairs [][]string
	if json.Unmarshal(source, &pairs) != nil {
		var lines []string
		if err := json.Unmarshal(source, &lines); err != nil {
			return files.Mistyped(err)
		}
		pairs = make([][]string, len(lines))
		for i, line := range lines {
			pairs[i] = strings.Split(line, " ")
		}
	}
	var joints *joints
	if v.bytes != nil {
		joints = newJoints()
		v.piece, v.cut = joints.piece, joints.cut
	}
	for rank, pair := range pairs {
		if err := v.addMerge(ids, rank, pair); err != nil {
			return fmt.Errorf("%d: %.100q: %w", rank, pair, err)
		}
		if joints != nil {
			joints.add(pair[0] + pair[1])
		}
	}
	return nil
}

// addMerge adds a merge of two tokens.
func (v *Vocabulary) addMerge(ids map[string]int32, rank int, pair []string) error {
	if len(pair) != 2 {
		return errors.New("want two tokens")
	}
	a, hasLeft := ids[pair[0]]
	b, hasRight := ids[pair[1]]
	id, has := ids[pair[0]+pair[1]]
	at := [2]int32{a, b}
	if !hasLeft || !hasRight || !has {
		return errors.New("want two tokens of the vocabulary that make a third")
	}
	if _, twice := v.merges[at]; twice {
		return errors.New("stands twice")
	}
	v.merges[at] = merge{rank, id}
	return nil
}
