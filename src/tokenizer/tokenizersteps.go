package tokenizer

import (
	"errors"
	"fmt"
	"slices"
)

// byteLevel is the type of the steps that spell bytes as letters.
const byteLevel = "ByteLevel"

// steps sets the effects of the steps before and after the model.
func (t *tokenizerJSON) steps(v *Vocabulary) (err error) {
	if t.Model.ByteFallback {
		return t.characterSteps(v)
	}
	for _, s := range t.Normalizer.flat() {
		if s.Type != "NFC" {
			return fmt.Errorf("normalizer: %.100s: this one is not supported, want NFC or null", s.Type)
		}
		v.composes = true
	}
	if t.Decoder == nil || t.Decoder.Type != byteLevel {
		return errors.New("decoder: this one is not supported, want ByteLevel")
	}
	if v.piece, v.cut, err = t.PreTokenizer.piece(); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	return nil
}

// characterSteps is steps for an encoding of characters, in which ▁ stands for a space. Either a
// normalizer or Metaspace makes that replacement.
func (t *tokenizerJSON) characterSteps(v *Vocabulary) error {
	list := t.Normalizer.flat()
	replaces := slices.ContainsFunc(list, func(s stepJSON) bool { return s.Type == "Replace" })
	for _, s := range list {
		switch {
		case s.Type == "Prepend" && s.Prepend == marked && v.leads == unled && replaces:
			v.leads = led
		case s.Type == "Replace" && s.Pattern["String"] == " " && s.Content == marked && !v.escapes:
			v.escapes = true
		default:
			return fmt.Errorf("normalizer: %.100s: this one is not supported, want Prepend of ▁ at most, and Replace of a space by ▁", s.Type)
		}
	}
	switch s := t.PreTokenizer; {
	case s == nil && v.escapes:
	case s == nil || s.Type != "Metaspace" || v.escapes || s.Replacement != marked || s.Split == nil || *s.Split:
		return errors.New("pre_tokenizer: this one is not supported, want null behind a normalizer that replaces spaces, or else Metaspace of ▁ with split false")
	default:
		var ok bool
		scheme := "always"
		if s.PrependScheme != nil {
			scheme = *s.PrependScheme
		}
		if v.leads, ok = map[string]leading{"always": lacking, "first": textLacking, "never": unled}[scheme]; !ok {
			return fmt.Errorf("pre_tokenizer: prepend_scheme %.100q is not supported, want always, first or never", scheme)
		}
	}
	return t.characterDecoder(v)
}

// characterDecoder returns an error unless a decoder turns tokens into their texts.
func (t *tokenizerJSON) characterDecoder(v *Vocabulary) error {
	list := t.Decoder.flat()
	if n := len(list); n > 0 && list[n-1].Type == "Strip" {
		if s := list[n-1]; s.Content != " " || s.Start != 1 || s.Stop != 0 {
			return fmt.Errorf("decoder: Strip: content %.100q, start %d, stop %d: not supported, want one space at the start", s.Content, s.Start, s.Stop)
		}
		v.strips, list = true, list[:n-1]
	}
	if len(list) != 3 || list[0].Type != "Replace" || list[0].Pattern["String"] != marked || list[0].Content != " " || list[1].Type != "ByteFallback" || list[2].Type != "Fuse" {
		return errors.New("decoder: this one is not supported, want a Sequence of Replace (▁ by a space), ByteFallback, Fuse and, at most, Strip")
	}
	return nil
}

// flat returns the steps of a sequence, or a single step as a list.
func (s *stepJSON) flat() []stepJSON {
	switch {
	case s == nil:
		return nil
	case s.Type == "Sequence":
		return slices.Concat(s.Normalizers, s.Decoders)
	}
	return []stepJSON{*s}
}

// piece returns two functions for a step before the model: one that cuts the first piece from a
// text, and one that finds places where documents may be cut.
func (s *stepJSON) piece() (first func(string) int, at func([]byte, int) int, err error) {
	byPattern := s != nil && s.Type == "Sequence" && len(s.Pretokenizers) == 2 && s.Pretokenizers[0].Type == "Split"
	spelling := s
	if byPattern {
		spelling = &s.Pretokenizers[1]
	}
	switch {
	case spelling == nil || spelling.Type != byteLevel:
		return nil, nil, errors.New("this one is not supported, want ByteLevel, or a Sequence of Split and ByteLevel")
	case spelling.AddPrefixSpace == nil || *spelling.AddPrefixSpace:
		return nil, nil, errors.New("add_prefix_space is not supported, want false")
	case (spelling.UseRegex == nil || *spelling.UseRegex) == byPattern:
		return nil, nil, fmt.Errorf("use_regex: want %v", !byPattern)
	case !byPattern:
		return piece, cut, nil
	}
	by := s.Pretokenizers[0]
	if by.Behavior != "Isolated" || by.Invert {
		return nil, nil, fmt.Errorf("Split: behavior %.100q, invert %v: not supported, want Isolated and false", by.Behavior, by.Invert)
	}
	known, ok := patterns[by.Pattern["Regex"]]
	if !ok {
		return nil, nil, fmt.Errorf("Split: pattern %.200q is not supported, want the regular expression of GPT-2, Llama 3 (cl100k), Qwen or o200k", by.Pattern)
	}
	return known.piece, known.cut, nil
}

// begin returns the tokens that a step after the model puts before a text.
func (s *stepJSON) begin() (before []int32, err error) {
	if s == nil || s.Type == byteLevel {
		return nil, nil
	}
	switch s.Type {
	case "Sequence":
		for i := range s.Processors {
			outer, err := s.Processors[i].begin()
			if err != nil {
				return nil, err
			}
			before = append(outer, before...)
		}
		return before, nil
	case "TemplateProcessing":
		texts := 0
		for _, part := range s.Single {
			if special, ok := part["SpecialToken"]; !ok {
				texts++
			} else if texts == 0 {
				before = append(before, s.SpecialTokens[special.ID].IDs...)
			}
		}
		if texts != 1 {
			return nil, fmt.Errorf("single: %d texts, want one", texts)
		}
		return before, nil
	}
	return nil, fmt.Errorf("type %.100q is not supported, want ByteLevel or TemplateProcessing", s.Type)
}
