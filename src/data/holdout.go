package data

import (
	"encoding/binary"
	"fmt"
	"sort"

	"dynmo/src/random"
)

// holdOutStream separates the order in which documents are held out from other random numbers.
const holdOutStream = 0x68656c64 // "held"

// extent is the ids [lo, hi) of a file or text. They are tokens [first, first+hi-lo) of a corpus.
type extent struct{ lo, hi, first int }

// take adds ids [lo, hi) to a corpus. If they follow the last extent it grows, else take adds a new
// extent.
func (c *Corpus) take(lo, hi int) {
	if lo == hi {
		return
	}
	if n := len(c.extents) - 1; n >= 0 && c.extents[n].hi == lo {
		c.extents[n].hi = hi
	} else {
		c.extents = append(c.extents, extent{lo, hi, c.tokens})
	}
	c.tokens += hi - lo
}

// copyTo fills dst with the tokens from token i on.
func (c *Corpus) copyTo(dst []int32, i int) {
	at := sort.Search(len(c.extents), func(k int) bool { return c.extents[k].first > i }) - 1
	for len(dst) > 0 {
		p := c.extents[at]
		lo := p.lo + i - p.first
		n := min(len(dst), p.hi-lo)
		c.content.copyTo(dst[:n], lo)
		dst, i, at = dst[n:], i+n, at+1
	}
}

// holdOut takes a share out of a corpus. It visits documents in an order that is drawn from their
// number alone. It takes a document if that brings the held-out part nearer to the share. If it
// would take no document or all, as in a text of one file, it takes the end of the corpus instead.
// So every run holds the same tokens out of the same data, and no sequence has tokens of both
// parts.
//
// A document is a document of text with the 0 byte after it, or a document in Megatron-LM's index. In
// other token files a document ends with an end-of-text token, or with the file.
func (s *source) holdOut(c *Corpus, share float64) error {
	total, want := c.tokens, share*float64(c.tokens)
	ends := s.ends(total)
	trained, held := Corpus{}, Corpus{content: c.content, hash: c.hash, changed: c.changed}
	begin := 0
	for i, out := range drawn(ends, want) {
		if out {
			held.take(begin, ends[i])
		} else {
			trained.take(begin, ends[i])
		}
		begin = ends[i]
	}
	if trained.tokens == 0 || held.tokens == 0 {
		trained, held = Corpus{}, Corpus{content: c.content, hash: c.hash, changed: c.changed}
		trained.take(0, total-int(want))
		held.take(total-int(want), total)
	}
	for _, part := range []struct {
		tokens int
		what   string
	}{{held.tokens, "are held out"}, {trained.tokens, "are left to train on"}} {
		if part.tokens <= s.sequence {
			return fmt.Errorf("data: data.validation = %v: wanted at least %d tokens, a sequence (model.sequence = %d) and the token after it; of the %d tokens of %s = %q, %d %s",
				share, s.sequence+1, s.sequence, total, s.key, s.path, part.tokens, part.what)
		}
	}
	c.extents, c.tokens, c.held = trained.extents, trained.tokens, &held
	return nil
}

// drawn reports which documents are held out to get about want tokens.
func drawn(ends []int, want float64) []bool {
	held, out := 0, make([]bool, len(ends))
	for _, i := range random.Keyed(holdOutStream).Perm(len(ends)) {
		tokens := ends[i]
		if i > 0 {
			tokens -= ends[i-1]
		}
		if out[i] = float64(held)+float64(tokens)/2 < want; out[i] {
			held += tokens
		}
	}
	return out
}

// ends returns the ends of the documents in the first total tokens, ascending. The last one is
// total.
func (s *source) ends(total int) []int {
	var ends []int
	add := func(end int) {
		if end < total && (len(ends) == 0 || ends[len(ends)-1] < end) {
			ends = append(ends, end)
		}
	}
	if s.isText() {
		for _, end := range s.documents {
			add(end)
		}
	}
	begin := 0
	for _, t := range s.tokens {
		t.ends(func(end int) { add(begin + end) })
		begin += t.Len()
		add(begin)
	}
	return append(ends, total)
}

// ends calls add with the ends of the documents of a token file, as far as they are known.
func (t *Tokens) ends(add func(end int)) {
	if t.Format == Megatron {
		t.megatronEnds(add)
		return
	}
	delimiter := t.End()
	for i := range t.Len() {
		if t.ids.id(i) == delimiter {
			add(i + 1)
		}
	}
}

// megatronEnds calls add with the ends of the documents in a Megatron data set.
func (t *Tokens) megatronEnds(add func(end int)) {
	idx := t.index
	sequences := int(binary.LittleEndian.Uint64(idx[18:]))
	documents := int(binary.LittleEndian.Uint64(idx[26:]))
	end, sequence := 0, 0
	for d := range documents {
		first := int(binary.LittleEndian.Uint64(idx[megatronHeader+12*sequences+8*d:]))
		for ; sequence < first; sequence++ {
			end += int(binary.LittleEndian.Uint32(idx[megatronHeader+4*sequence:]))
		}
		add(end)
	}
}
