package piece

import (
	"fmt"
	"slices"
	"strings"
)

// Assignment says which replicas hold the pieces of all blocks. The zero value is the initial
// assignment, in which pieces lie evenly. A value never changes.
type Assignment struct{ blocks []Map }

// New returns an assignment with a map for each block. The caller does not change the maps any more.
func New(blocks []Map) Assignment { return Assignment{blocks} }

// IsZero reports whether this is the initial assignment.
func (a Assignment) IsZero() bool { return len(a.blocks) == 0 }

// Blocks returns the number of blocks; 0 for the initial assignment.
func (a Assignment) Blocks() int { return len(a.blocks) }

// Block returns the map of a block, nil if the assignment has none for it.
func (a Assignment) Block(block int) Map {
	if block >= len(a.blocks) {
		return nil
	}
	return a.blocks[block]
}

// Equal reports whether two assignments are the same.
func (a Assignment) Equal(b Assignment) bool {
	if len(a.blocks) == len(b.blocks) && (len(a.blocks) == 0 || &a.blocks[0] == &b.blocks[0]) {
		return true // the same memory
	}
	return slices.EqualFunc(a.blocks, b.blocks, Map.Equal)
}

// between stands between the maps of two blocks in a text.
const between = ";"

// String returns the texts of the blocks' maps with a semicolon between two of them:
//
//	0*2 1+0+3 1;0*2 1*2
//
// The text of the initial assignment is empty.
func (a Assignment) String() string {
	texts := make([]string, len(a.blocks))
	for block, m := range a.blocks {
		texts[block] = m.String()
	}
	return strings.Join(texts, between)
}

// MarshalText returns the text, which stands as a string in records and checkpoints.
func (a Assignment) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads a text (see Parse).
func (a *Assignment) UnmarshalText(text []byte) (err error) {
	*a, err = Parse(string(text))
	return err
}

// Parse reads what String wrote. It does not know the model: the maps may be some that Check refuses.
func Parse(text string) (Assignment, error) {
	if text == "" {
		return Assignment{}, nil
	}
	var a Assignment
	left := most
	for block, text := range strings.Split(text, between) {
		m, err := parseMap(text, left)
		if err != nil {
			return Assignment{}, fmt.Errorf("pieces of block %d: %w", block, err)
		}
		a.blocks, left = append(a.blocks, m), left-len(m)
	}
	return a, nil
}
