package layouts

import (
	"slices"
	"strings"
	"testing"
)

// Texts and outcomes were checked with Megatron-LM d98e8a64.
func TestParseMegatron(t *testing.T) {
	for text, want := range map[string]string{
		"Ettt|(tt|)*2,m|L": "Ettt tt tt m L",
		"Et*3|(tt|)*2m|L":  "Ettt tt tt m L",
		"E,t,L":            "EtL",
		"E|(t|)*3,m|m||L":  "E t t t m m  L",
		"Et*0|t*2|L":       "E tt L",
		"(ab)*0EtL":        "EtL",
		"(t*2|)*2L":        "tt tt L",
		"":                 "",
		"(|t)*2,L":         " t tL",
		"Et*12|tL":         "E" + strings.Repeat("t", 12) + " tL",
	} {
		got, err := ParseMegatron(text)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"E t|L", "E,(t),L", "((t|)*2t|)*2L", "E|x|L", "t*", "*3", "(t", "t)*2", "()*3", "t*99999999", "(t*9999|)*9999"} {
		if got, err := ParseMegatron(text); err == nil {
			t.Errorf("%q: %q, want an error", text, got)
		}
	}
}

func TestCheckMegatron(t *testing.T) {
	for _, c := range []struct {
		text                 string
		stages, blocks, mtps int
		fails                string
	}{
		{"Et|t|t|tL", 4, 4, 0, ""},
		{"Et|t|t|tL", 2, 4, 0, ""},
		{"Et*3|(tt|)*29,m|L", 16, 61, 1, ""},
		{"|Et|t|tL", 2, 3, 0, ""}, // E is built by the first stage all the same
		{"E|(t|)*3,m|m||L", 2, 3, 2, "m is in virtual stage 4, want it in the last chunk"},
		{"E|(t|)*3,m|m||L", 8, 3, 2, "1 of 2 m"},
		{"Et|t|tL", 2, 3, 0, "3 virtual stages"},
		{"tE|tL", 2, 2, 0, "want E first"},
		{"Et|Lt", 2, 2, 0, "want L last"},
		{"Et|EtL", 2, 2, 0, "2 E and 1 L"},
		{"Et|tL", 2, 3, 0, "2 t, want 3"},
		{"Et|mtL", 2, 2, 1, "a t behind an m"},
		{"Et|tmL", 2, 2, 0, "1 m, want 0"},
	} {
		virtual, err := ParseMegatron(c.text)
		if err != nil {
			t.Fatal(err)
		}
		err = CheckMegatron(virtual, c.stages, c.blocks, c.mtps)
		if err == nil != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s on %d: %v, want %q", c.text, c.stages, err, c.fails)
		}
		if again, err := ParseMegatron(shortMegatron(virtual)); err != nil || !slices.Equal(again, virtual) {
			t.Errorf("%s is written as %s: %v", c.text, shortMegatron(virtual), err)
		}
	}
}

func TestShortMegatron(t *testing.T) {
	for _, text := range []string{"Et*9|t*8|t*8|t*7L", "Ett|(tt|)*29tm|L", "E|tL", "Et|||L", "(tt|)*4tt"} {
		virtual, err := ParseMegatron(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := shortMegatron(virtual); got != text {
			t.Errorf("%s, want %s", got, text)
		}
	}
}
