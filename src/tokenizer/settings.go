package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/data"
)

// settings is the part of tokenizer_config.json that is used beside tokenizer.json or
// tokenizer.model: the token that ends texts, whether texts get a begin token (for sentencepiece
// models), and added tokens.
type settings struct {
	End      json.RawMessage      `json:"eos_token"`
	AddBegin *bool                `json:"add_bos_token"`
	Plain    bool                 `json:"split_special_tokens"`
	Added    map[int32]addedToken `json:"added_tokens_decoder"`
}

// applySettings applies the files beside tokenizer.json or tokenizer.model. at is the origin of the
// files. An error names the file, and a token or setting that is not supported.
func (v *Vocabulary) applySettings(at string, files map[string][]byte) error {
	var s settings
	named := make(map[string]bool) // special tokens
	var older map[string]int32
	for _, f := range []struct {
		name  string
		apply func([]byte) error
	}{
		{data.SettingsFile, func(text []byte) error {
			if err := json.Unmarshal(text, &s); err != nil {
				return err
			}
			if err := v.set(s, files[data.TokenizerFile] == nil); err != nil {
				return err
			}
			return v.addNamed(named, text)
		}},
		{data.SpecialFile, func(text []byte) error { return v.addNamed(named, text) }},
		{data.AddedFile, func(text []byte) error {
			if err := json.Unmarshal(text, &older); err != nil || s.Added != nil {
				return err
			}
			for _, content := range slices.Sorted(maps.Keys(older)) {
				isSpecial := named[content]
				if v.added[older[content]].Content == content {
					continue // transformers takes the properties in tokenizer.json
				}
				if err := v.addKnown(addedToken{ID: older[content], Content: content, Normalized: !isSpecial, Special: isSpecial}); err != nil {
					return err
				}
			}
			return nil
		}},
	} {
		if text, ok := files[f.name]; ok {
			if err := f.apply(text); err != nil {
				return fmt.Errorf("%s: %w", filepath.Join(at, f.name), err)
			}
		}
	}
	return nil
}

// set applies tokenizer_config.json. The error names a setting, or a token that does not exist.
func (v *Vocabulary) set(s settings, pieces bool) error {
	if s.Plain {
		return errors.New("split_special_tokens: true is not supported, want false")
	}
	end, err := tokensIn(s.End)
	if err != nil {
		return fmt.Errorf("eos_token: %w", err)
	}
	if len(end) > 0 {
		id := slices.Index(v.tokens, end[0].Content)
		if id < 0 {
			return fmt.Errorf("eos_token: %.100q is no token of the vocabulary", end[0].Content)
		}
		v.End = int32(id)
	}
	if pieces && s.AddBegin != nil && !*s.AddBegin {
		v.begin = nil
	}
	for _, id := range slices.Sorted(maps.Keys(s.Added)) {
		a := s.Added[id]
		a.ID = id
		if err := v.addKnown(a); err != nil {
			return fmt.Errorf("added_tokens_decoder: %w", err)
		}
	}
	return nil
}

// addKnown makes texts be searched for a token of the vocabulary. An error says that the vocabulary
// lacks the token, or that a property of it is not supported.
func (v *Vocabulary) addKnown(a addedToken) error {
	if v.pieces != nil {
		a.Normalized = false // the text of a sentencepiece model is not normalised
	}
	if a.ID < 0 || int(a.ID) >= len(v.tokens) || v.tokens[a.ID] != a.Content {
		return fmt.Errorf("%d, %.100q: %s has no such token, want a %s that has it", a.ID, a.Content, v.source(), data.TokenizerFile)
	}
	if err := a.check(); err != nil {
		return err
	}
	v.search(a)
	return nil
}

// source returns the name of the file that the vocabulary comes from.
func (v *Vocabulary) source() string {
	if v.pieces != nil {
		return data.PieceFile
	}
	return data.TokenizerFile
}

// addNamed adds the special tokens of the vocabulary that a member such as bos_token names, and puts
// all names into named. A list such as additional_special_tokens leaves an added token as it is.
func (v *Vocabulary) addNamed(named map[string]bool, text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	found := make(map[string]addedToken)
	for _, member := range slices.Sorted(maps.Keys(members)) {
		if !strings.HasSuffix(member, "_token") && !strings.HasSuffix(member, "_special_tokens") { // additional_ and extra_
			continue
		}
		tokens, err := tokensIn(members[member])
		if err != nil {
			return fmt.Errorf("%s: %w", member, err)
		}
		isList := strings.HasPrefix(strings.TrimSpace(string(members[member])), "[")
		for _, a := range tokens {
			a.Special = !isList
			found[a.Content], named[a.Content] = a, true
		}
	}
	for id, token := range v.tokens {
		a, ok := found[token]
		if !ok {
			continue
		}
		if known, ok := v.added[int32(id)]; ok && known.Content == token {
			known.Special = known.Special || a.Special
			v.search(known)
			continue
		}
		a.ID, a.Special = int32(id), true
		if err := v.addKnown(a); err != nil {
			return err
		}
	}
	return nil
}
