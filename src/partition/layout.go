package partition

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ParseLayout reads cuts in the notation of Megatron-LM's option pipeline-model-parallel-layout,
// such as "Et|t*3|(tt|)*2|tL". E is the embedding, t a block and L the head with the loss. | ends a
// virtual stage. *n repeats the symbol or the parenthesised group before it. Commas and spaces are
// ignored.
//
// The chain is the embedding, `blocks` blocks of perBlock layers each, and a head of `slices`
// layers. All three are at least 1. The error names the position in text, from 1. Departs:
// Megatron-LM allows stages without layers, and m for its multi-token prediction. Both are errors
// here.
func ParseLayout(text string, blocks, perBlock, slices int) (Partition, error) {
	symbols, err := expandLayout(text, 2*(blocks+2)) // each layer, and an end of a stage for each
	if err != nil {
		return nil, err
	}
	cuts := Partition{0}
	layers, seen := 0, 0 // so far: layers, and blocks among them
	head := false
	for i, s := range symbols {
		at := func(format string, args ...any) error {
			return fmt.Errorf("position %d: "+format, append([]any{s.at}, args...)...)
		}
		switch {
		case i == 0 && s.symbol != 'E':
			return nil, at("%c, want E first", s.symbol)
		case s.symbol == '|' && layers == cuts[len(cuts)-1]:
			return nil, at("a stage without layers")
		case s.symbol == '|':
			cuts = append(cuts, layers)
		case head:
			return nil, at("%c after L, want L last", s.symbol)
		case s.symbol == 'E' && i > 0:
			return nil, at("E again, want one")
		case s.symbol == 'E':
			layers++
		case s.symbol == 't' && seen == blocks:
			return nil, at("one t more than the %d blocks", blocks)
		case s.symbol == 't':
			seen++
			layers += perBlock
		case seen < blocks:
			return nil, at("L after %d t, want %d, one for each block", seen, blocks)
		default:
			head = true
			layers += slices
		}
	}
	if !head {
		return nil, errors.New("no L at the end")
	}
	if layers == cuts[len(cuts)-1] {
		return nil, errors.New("a stage without layers behind the last |")
	}
	return append(cuts, layers), nil
}

// layoutSymbol is E, t, L or |, with its position in the text.
type layoutSymbol struct {
	symbol byte
	at     int
}

// expandLayout expands the repetitions. More than `most` symbols are an error.
func expandLayout(text string, most int) ([]layoutSymbol, error) {
	var out []layoutSymbol
	type group struct{ begin, at int } // in out, and in text
	var open []group
	unit := -1 // start in out of the symbol or group that * would repeat
	for i := 0; i < len(text); i++ {
		at := i + 1
		switch c := text[i]; c {
		case ' ', ',':
		case 'E', 't', 'L', '|':
			unit = len(out)
			out = append(out, layoutSymbol{c, at})
		case '(':
			open, unit = append(open, group{len(out), at}), -1
		case ')':
			if len(open) == 0 {
				return nil, fmt.Errorf("position %d: ) without (", at)
			}
			unit = open[len(open)-1].begin
			open = open[:len(open)-1]
		case '*':
			digits := len(text[i+1:]) - len(strings.TrimLeft(text[i+1:], "0123456789"))
			n, err := strconv.Atoi(text[i+1 : i+1+digits])
			switch {
			case unit < 0:
				return nil, fmt.Errorf("position %d: * without a symbol or group before it", at)
			case err != nil || n < 1 || n > most:
				return nil, fmt.Errorf("position %d: *%s, want a count from 1 to %d", at, text[i+1:i+1+digits], most)
			case len(out)+(n-1)*(len(out)-unit) > most:
				return nil, fmt.Errorf("position %d: *%d makes more than %d symbols, two for each of embedding, blocks and head", at, n, most)
			}
			repeated := out[unit:]
			for range n - 1 {
				out = append(out, repeated...)
			}
			unit = -1
			i += digits
		default:
			r, _ := utf8.DecodeRuneInString(text[i:])
			return nil, fmt.Errorf("position %d: %q, want E, t, L, |, *, ( or )", at, r)
		}
		if len(out) > most {
			return nil, fmt.Errorf("position %d: more than %d symbols, two for each of embedding, blocks and head", at, most)
		}
	}
	if n := len(open); n > 0 {
		return nil, fmt.Errorf("position %d: ( without )", open[n-1].at)
	}
	return out, nil
}

// FormatLayout writes cuts in the notation of ParseLayout, with the shortest text for each stage
// and no groups. Cuts inside a block or inside the head, and stages without layers, have no
// notation. They are errors, as are cuts of another chain.
func FormatLayout(p Partition, blocks, perBlock, slices int) (string, error) {
	if err := p.Check(1+blocks*perBlock+slices, p.Stages(), true); err != nil {
		return "", err
	}
	var b strings.Builder
	head := 1 + blocks*perBlock
	for s := range p.Stages() {
		lo, hi := p.Range(s)
		if s > 0 {
			b.WriteByte('|')
			if lo > head {
				return "", fmt.Errorf("stage %d begins inside the head", s)
			}
			if (lo-1)%perBlock != 0 {
				return "", fmt.Errorf("stage %d begins inside a block", s)
			}
		}
		if lo == 0 {
			b.WriteByte('E')
			lo = 1
		}
		if n := (min(hi, head) - lo) / perBlock; n > 2 {
			fmt.Fprintf(&b, "t*%d", n)
		} else {
			b.WriteString("tt"[:n])
		}
		if hi > head {
			b.WriteByte('L')
		}
	}
	return b.String(), nil
}
