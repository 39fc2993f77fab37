package piece

import (
	"encoding/json"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// TestText: a text reads as the replicas that it names and is written the same, alone and in JSON.
func TestText(t *testing.T) {
	for _, c := range []struct {
		text string
		want Assignment
	}{
		{"", Assignment{}},
		{"0*2 1*2", New([]Map{{{0}, {0}, {1}, {1}}})},
		{"0*2 1+0+3 1;2+0*2", New([]Map{{{0}, {0}, {1, 0, 3}, {1}}, {{2, 0}, {2, 0}}})},
	} {
		got, err := Parse(c.text)
		expect.OK(t, err)
		if !got.Equal(c.want) || got.IsZero() != (c.text == "") || c.want.String() != c.text {
			t.Errorf("%q: %v, want %v, whose text is %q", c.text, got.blocks, c.want.blocks, c.want)
		}
		text, err := json.Marshal(c.want)
		expect.OK(t, err)
		var again Assignment
		expect.OK(t, json.Unmarshal(text, &again))
		if string(text) != `"`+c.text+`"` || !again.Equal(c.want) {
			t.Errorf("%q: JSON %s, which reads as %v", c.text, text, again)
		}
	}
}

func TestEqual(t *testing.T) {
	texts := []string{"", "0 1", "0 1+0", "1 0", "0 1;0 1", "0 1;0 1+0"}
	for i, one := range texts {
		for k, other := range texts {
			a, err := Parse(one)
			expect.OK(t, err)
			b, err := Parse(other)
			expect.OK(t, err)
			if a.Equal(b) != (i == k) {
				t.Errorf("%q equals %q: %v", one, other, a.Equal(b))
			}
		}
	}
}

func TestBadText(t *testing.T) {
	for text, want := range map[string]string{
		"a":                       `block 0: "a": "a", want the number of a replica`,
		"0*1":                     `block 0: "0*1": want replicas*n with n of at least 2`,
		"0 1;0*-3":                `block 1: "0*-3": want replicas*n`,
		"1+":                      `"1+": "", want the number of a replica`,
		"-1":                      `want the number of a replica`,
		"0*99999999":              `want at most 4194304 pieces in all`,
		"0*4000000;0*4000000":     `block 1: "0*4000000": want at most 4194304`,
		strings.Repeat("x", 1000): strings.Repeat("x", 100) + `, want`,
	} {
		if a, err := Parse(text); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, ", want")) || len(err.Error()) > 300 {
			t.Errorf("%.40q: %.40v, %v, want %q", text, a, err, want)
		}
	}
}

// FuzzParse: what reads is written and read again as the same assignment.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "0*2 1+0+3 1;0*2", ";", " 0 ;1", "0*99999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := Parse(text)
		if err != nil || a.Blocks() == 1 && len(a.Block(0)) == 0 { // one block without pieces has the text of no block
			return
		}
		again, err := Parse(a.String())
		if err != nil || !again.Equal(a) {
			t.Errorf("%q: %v is read as %v, %v", text, a.blocks, again.blocks, err)
		}
	})
}
