package tokenizer

// spellings are the added tokens that texts are searched for, as a tree of the bytes of their
// spellings. The zero value has none.
type spellings struct {
	root    branch
	first   [1 << 8]bool // bytes that begin a spelling
	longest int          // length in bytes of the longest spelling
}

// branch is the spellings with one beginning.
type branch struct {
	token *addedToken // the token that is spelt so; may be nil
	next  map[byte]*branch
}

// set makes a spelling that of a token, or of none if it is nil.
func (s *spellings) set(spelling string, token *addedToken) {
	b := &s.root
	for i := range len(spelling) {
		next, ok := b.next[spelling[i]]
		if !ok {
			next = new(branch)
			if b.next == nil {
				b.next = make(map[byte]*branch)
			}
			b.next[spelling[i]] = next
		}
		b = next
	}
	b.token = token
	s.first[spelling[0]] = true
	s.longest = max(s.longest, len(spelling))
}

// at returns the token with the longest spelling at the begin of text, and the length of that
// spelling. The token is nil if there is none.
func (s *spellings) at(text string) (token *addedToken, length int) {
	b := &s.root
	for i := range len(text) {
		if b = b.next[text[i]]; b == nil {
			break
		}
		if b.token != nil {
			token, length = b.token, i+1
		}
	}
	return token, length
}

// part is an added token in a text, or the text between two of them. at is its offset.
type part struct {
	text  string
	at    int
	token *addedToken // nil for text
}

// apart cuts a text into parts, at added tokens. at is the offset of the text. In a document the
// spelling of a special token is text, and no other token is found inside of that spelling.
func (s *spellings) apart(text string, at int, isDocument bool) (parts []part) {
	start := 0 // of the text that is in no part yet
	for i := 0; i < len(text); {
		if s.longest == 0 {
			break
		}
		if !s.first[text[i]] {
			i++
			continue
		}
		token, n := s.at(text[i:])
		switch {
		case token == nil:
			i++
			continue
		case isDocument && token.Special:
			i += n
			continue
		case start < i:
			parts = append(parts, part{text[start:i], at + start, nil})
		}
		parts = append(parts, part{text[i : i+n], at + i, token})
		i += n
		start = i
	}
	if start < len(text) {
		parts = append(parts, part{text[start:], at + start, nil})
	}
	return parts
}

// crosses reports whether a spelling may begin before a place in text and end behind it. The text
// may go on.
func (s *spellings) crosses(text []byte, place int) bool {
	for start := max(0, place-s.longest+1); start < place; start++ {
		b := &s.root
		for i := start; b != nil; i++ {
			if i > place && b.token != nil || i == len(text) && len(b.next) > 0 {
				return true
			}
			if i == len(text) {
				break
			}
			b = b.next[text[i]]
		}
	}
	return false
}
