package tokenizer

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/data"
)

// pairClass is a class of transformers that reads vocab.json with merges.txt. defaults are the
// settings that name <|endoftext|> where tokenizer_config.json lacks them.
type pairClass struct {
	expression string
	composes   bool // see Vocabulary
	defaults   []string
}

// pairClasses are the known classes, by name, as in transformers 5.12.1.
var pairClasses = map[string]pairClass{
	"GPT2Tokenizer":  {gpt2Pattern, false, []string{"bos_token", "eos_token", "unk_token"}},
	"Qwen2Tokenizer": {qwenPattern, true, []string{"eos_token", "unk_token", "pad_token"}},
}

// specialNames are settings that name special tokens, in the order in which transformers adds these
// tokens. Other settings whose names end in _token follow, and then lists.
var specialNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// pairSettings is the part of tokenizer_config.json that affects ids of vocab.json with merges.txt.
type pairSettings struct {
	Class     string               `json:"tokenizer_class"`
	AddPrefix bool                 `json:"add_prefix_space"`
	AddBegin  bool                 `json:"add_bos_token"`
	Plain     bool                 `json:"split_special_tokens"`
	Added     map[int32]addedToken `json:"added_tokens_decoder"`
	members   map[string]json.RawMessage
	class     pairClass
	named     map[string]string // tokens by the settings that name them
}

// parsePair returns the vocabulary of vocab.json with merges.txt. tokenizer_config.json says how
// texts are cut, and which tokens are added. Without its tokenizer_class texts are cut as GPT-2's.
func parsePair(at string, files map[string][]byte) (*Vocabulary, error) {
	fail := func(name string, err error) (*Vocabulary, error) {
		return nil, fmt.Errorf("%s: %w", filepath.Join(at, name), err)
	}
	var ids map[string]int32
	if err := json.Unmarshal(files[data.VocabFile], &ids); err != nil {
		return fail(data.VocabFile, err)
	}
	if _, ok := files[data.MergesFile]; !ok {
		return fail(data.MergesFile, fs.ErrNotExist)
	}
	s, err := readPairSettings(files)
	if err != nil {
		return fail(data.SettingsFile, err)
	}
	added, err := s.tokens(ids, files)
	if err != nil {
		return fail(data.SettingsFile, err)
	}
	all, err := withAdded(ids, added)
	if err != nil {
		return fail(data.SettingsFile, err)
	}
	p := patterns[s.class.expression]
	v := &Vocabulary{ids: make(map[string]int32), merges: make(map[[2]int32]merge), piece: p.piece, cut: p.cut, composes: s.class.composes}
	if err := v.number(ids, all, added, false); err != nil {
		return fail(data.VocabFile, err)
	}
	if err := v.parseMerges(ids, string(files[data.MergesFile])); err != nil {
		return fail(data.MergesFile, err)
	}
	v.End = -1
	if end, ok := s.named["eos_token"]; ok {
		v.End = all[end]
	}
	if begin, ok := s.named["bos_token"]; ok && s.AddBegin {
		v.begin = []int32{all[begin]}
	}
	return v, nil
}

// readPairSettings reads tokenizer_config.json, if any. The error names a setting that is not
// supported.
func readPairSettings(files map[string][]byte) (*pairSettings, error) {
	s := &pairSettings{named: make(map[string]string)}
	if text, ok := files[data.SettingsFile]; ok {
		if err := json.Unmarshal(text, s); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &s.members); err != nil {
			return nil, err
		}
	}
	const otherwise = "or else tokenizer.json beside it"
	var ok bool
	switch s.class, ok = pairClasses[strings.TrimSuffix(s.Class, "Fast")]; {
	case s.Class == "":
		s.class = pairClasses["GPT2Tokenizer"]
	case !ok:
		return nil, fmt.Errorf("tokenizer_class: %.100q is not supported with %s, want one of %s, %s", s.Class, data.VocabFile, strings.Join(slices.Sorted(maps.Keys(pairClasses)), ", "), otherwise)
	}
	for name, on := range map[string]bool{"add_prefix_space": s.AddPrefix, "split_special_tokens": s.Plain} {
		if on {
			return nil, fmt.Errorf("%s: true is not supported with %s, want false, %s", name, data.VocabFile, otherwise)
		}
	}
	return s, nil
}

// tokens returns the added tokens in the order in which transformers adds them. Without
// added_tokens_decoder they are in the older files added_tokens.json and special_tokens_map.json.
func (s *pairSettings) tokens(ids map[string]int32, files map[string][]byte) (list []addedToken, err error) {
	isOlder := s.Added == nil
	members := maps.Clone(s.members)
	if members == nil {
		members = make(map[string]json.RawMessage)
	}
	if isOlder {
		var older map[string]int32
		for name, value := range map[string]any{data.SpecialFile: &members, data.AddedFile: &older} {
			if text, ok := files[name]; ok {
				if err := json.Unmarshal(text, value); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		s.Added = make(map[int32]addedToken)
		for content, id := range older {
			s.Added[id] = addedToken{Content: content, Normalized: true}
		}
	}
	next := int32(len(ids)) // the id of the next token that the vocabulary lacks
	add := func(a addedToken) {
		if _, ok := ids[a.Content]; !ok {
			next++
		}
		list = append(list, a)
	}
	for _, id := range slices.Sorted(maps.Keys(s.Added)) {
		a := s.Added[id]
		a.ID = id
		add(a)
	}
	for _, name := range s.names(members, ids) {
		tokens, err := tokensIn(members[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, a := range tokens {
			s.named[name] = a.Content
			if i := slices.IndexFunc(list, func(b addedToken) bool { return b.Content == a.Content }); i >= 0 {
				list[i].Special, list[i].Normalized = true, list[i].Normalized && !isOlder
				continue
			}
			id, ok := ids[a.Content]
			if !ok {
				id = next
			}
			a.ID, a.Special = id, true
			add(a)
		}
	}
	return list, nil
}

// names returns the settings that name special tokens, in order. It sets the defaults of the class in
// members. Without tokenizer_class they hold if the vocabulary has their token.
func (s *pairSettings) names(members map[string]json.RawMessage, ids map[string]int32) []string {
	_, has := ids[gpt2End]
	for _, name := range s.class.defaults {
		if _, ok := members[name]; !ok && (has || s.Class != "") {
			members[name] = json.RawMessage(`"` + gpt2End + `"`)
		}
	}
	names := slices.Clone(specialNames)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if strings.HasSuffix(name, "_token") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return append(names, "extra_special_tokens", "additional_special_tokens")
}

// tokensIn returns the tokens in a setting: a spelling, a token with properties, or a list or an
// object of these. Other values, such as true, name no token.
func tokensIn(value json.RawMessage) (list []addedToken, err error) {
	var parts []json.RawMessage
	var members map[string]json.RawMessage
	var content string
	switch {
	case len(value) == 0:
	case json.Unmarshal(value, &content) == nil && content != "":
		return []addedToken{{Content: content}}, nil
	case json.Unmarshal(value, &members) == nil && members["content"] != nil:
		list = make([]addedToken, 1)
		return list, json.Unmarshal(value, &list[0])
	case members != nil:
		for _, name := range slices.Sorted(maps.Keys(members)) {
			parts = append(parts, members[name])
		}
	default:
		_ = json.Unmarshal(value, &parts) // true, false and null have none
	}
	for _, part := range parts {
		more, err := tokensIn(part)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}
