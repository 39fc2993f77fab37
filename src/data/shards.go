package data

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// openTokens returns the corpus of token files, limited to `limit` bytes of ids (0 means all).
func (s *source) openTokens(list []File) (*Corpus, error) {
	var all content
	total, left := 0, s.limit
	fail := func(err error) (*Corpus, error) {
		for _, t := range s.tokens {
			err = errors.Join(err, t.Close())
		}
		return nil, fmt.Errorf("data: %s: %w", s.key, err)
	}
	for _, f := range list {
		if s.limit > 0 && left <= 0 {
			break
		}
		t, err := OpenTokens(f.Path, s.raw)
		if err != nil {
			return fail(err)
		}
		s.tokens = append(s.tokens, t)
		total += t.Len()
		t.ids = t.ids.limit(left)
		left -= int64(max(len(t.ids.raw), t.ids.width()))
		if err := t.Check(s.vocab); err != nil {
			return fail(err)
		}
		all = append(all, newPart(t.ids))
	}
	if n := all.count(); n < s.sequence+1 {
		found := fmt.Sprint(total)
		if n < total {
			found = fmt.Sprintf("%d of %d (data.limit_bytes = %d)", n, total, s.limit)
		}
		return fail(fmt.Errorf("%s: wanted at least %d tokens, a sequence (model.sequence = %d) and the token after it; found %s",
			s.path, s.sequence+1, s.sequence, found))
	}
	files := s.tokens
	c := newCorpus(all, func() error {
		for i, t := range files {
			if err := t.Changed(all[i].hash()); err != nil {
				return fmt.Errorf("data: %s: %w", s.key, err)
			}
		}
		return nil
	})
	c.files = len(files)
	var err error
	if c.weights, err = parseWeights(s.weights, len(all)); err != nil {
		return fail(fmt.Errorf("data.weights = %q: %w", s.weights, err))
	}
	return c, nil
}

// parseWeights reads the weights of files, and returns their shares; nil for none.
func parseWeights(text string, want int) ([]float64, error) {
	if text == "" {
		return nil, nil
	}
	var list []float64
	sum := 0.0
	for field := range strings.SplitSeq(text, ",") {
		w, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
		if err != nil || !(w > 0) || w > 1e9 {
			return nil, fmt.Errorf("%.100q, wanted numbers above 0 with commas between them", field)
		}
		list, sum = append(list, w), sum+w
	}
	if len(list) != want {
		return nil, fmt.Errorf("%d numbers, wanted %d, one for each token file", len(list), want)
	}
	for i := range list {
		list[i] /= sum
	}
	return list, nil
}

// bounds returns, by file, the number of the corpus's tokens up to its end.
func (c *Corpus) bounds() []int {
	var list []int
	end := 0
	for _, x := range c.content {
		end += x.count()
		tokens := 0
		for _, e := range c.extents {
			tokens += max(0, min(e.hi, end)-e.lo)
		}
		list = append(list, tokens)
	}
	return list
}

// checkWeights returns an error unless every file with a weight has room for a sequence.
func (s *source) checkWeights(c *Corpus) error {
	if c.weights == nil {
		return nil
	}
	begin := 0
	for i, end := range c.bounds() {
		if end-begin <= s.sequence {
			return fmt.Errorf("data: %s: %s has %d tokens to train on: wanted at least %d with a weight, a sequence (model.sequence = %d) and the token after it",
				s.key, s.tokens[i].file, end-begin, s.sequence+1, s.sequence)
		}
		begin = end
	}
	return nil
}
