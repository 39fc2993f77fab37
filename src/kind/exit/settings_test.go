package exit

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// TestExitErrors: depths that a chain does not have, or out of order, and steps backwards,
// are named with what is wanted.
func TestExitErrors(t *testing.T) {
	depths := `wanted "auto", or ascending numbers of blocks from 1 to 5 with commas between them`
	for set, want := range map[string]string{
		"exit.after=3,6":                            `run.toml: exit.after = "3,6", exit.from = 0.25, model.blocks = 6: ` + depths,
		"exit.after=4,2":                            depths,
		"exit.after=2,2":                            depths,
		"exit.after=0,2":                            depths,
		"exit.after=2;4":                            depths,
		"exit.after=":                               depths,
		"exit.from=0.95":                            `exit.after = "auto", exit.from = 0.95, model.blocks = 6: wanted a smaller exit.from: no block is left between the first exit and the last block`,
		"exit.after=+2":                             depths,
		"model.blocks=1":                            "wanted at least 2 blocks: tokens leave between two",
		"exit.confidence=doubt":                     `exit.confidence = "doubt": wanted "classifier", "saturation" or "softmax"`,
		"exit.share=1":                              "exit.share = 1.0: wanted a number at least 0 and below 1",
		"exit.share=0.5 exit.until=99":              "exit.until = 99, exit.start = 100: wanted exit.until to be at least exit.start",
		"exit.probe=2":                              "exit.probe = 2.0: wanted a number at least 0 and at most 1",
		"parallel.stages=12":                        "at most a stage for each of the 11 layers",
		"exit.after=2,4 parallel.stages=10":         "",
		"exit.propagate=true":                       "",
		"exit.propagate=true dynamic.kind=exit+mod": `exit.propagate = true, dynamic.kind = "exit+mod": wanted exit.propagate = false beside mod`,
	} {
		_, err := config.Load("", append([]string{"dynamic.kind=exit"}, strings.Fields(set)...))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "--set: ", "run.toml: "), want)) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}

// TestExitDepths: auto is every quarter of the chain, as far as there are blocks between.
func TestExitDepths(t *testing.T) {
	for _, c := range []struct {
		after, want string
		from        float64
		blocks      int
	}{
		{"auto", "3,6,9", 0.25, 12}, {"auto", "6,9", 0.5, 12}, {"auto", "12,24,36", 0.25, 48}, {"auto", "1", 0.25, 2}, {"auto", "1,2", 0.25, 3},
		{"auto", "2,4,6", 0, 8}, {"auto", "1,3,5,7", 0.1, 8}, {"2, 5", "2,5", 0.25, 8}, {"auto", "", 0.9, 4},
	} {
		e := options{After: c.after, From: c.from}
		if got := e.Depths(c.blocks); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
		if got := e.Count(c.blocks); got != len(strings.FieldsFunc(c.want, func(r rune) bool { return r == ',' })) {
			t.Errorf("%+v: %d exits", c, got)
		}
	}
}

// TestExitSays: a threshold that lets no token out, or all, works and is said, and so is every
// setting without effect, not the first alone.
func TestExitSays(t *testing.T) {
	for sets, want := range map[string]string{
		"":                               "",
		"exit.threshold=1.5":             "exit.threshold = 1.5 lets no token leave: no confidence is above 1",
		"exit.threshold=-1":              "exit.threshold = -1 lets every token leave at the first exit: no confidence is below 0",
		"exit.share=0.5 train.steps=100": "exit.share = 0.5 has no effect: exit.start = 100 is not below train.steps = 100",
		"exit.threshold=-1 exit.share=0.5 train.steps=101": "exit.threshold = -1 has no effect while exit.share = 0.5",
		"exit.start=3":                                "exit.start = 3 has no effect while exit.share = 0",
		"exit.until=300":                              "exit.until = 300 has no effect while exit.share = 0",
		"exit.share=0.5 exit.start=3":                 "",
		"exit.threshold=0":                            "exit.threshold = 0 lets every token leave at the first exit: every confidence is above 0",
		"exit.threshold=0 exit.confidence=saturation": "",
		"exit.start=3 exit.until=300":                 "exit.start = 3 has no effect while exit.share = 0\nexit.until = 300 has no effect while exit.share = 0",
		"exit.after=2,4 exit.from=0.5":                "exit.from = 0.5 has no effect while exit.after = \"2,4\"",
		"exit.weight=0 exit.probe=0.5":                "exit.probe = 0.5 has no effect while exit.weight = 0",
		"exit.weight=0":                               "",
		"exit.propagate=true":                         "",
		"exit.train=weighted":                         `exit changes no layer's cost: by exit.train = "weighted" every token goes through all blocks`,
		"exit.train=weighted exit.weight=2 exit.threshold=1": `exit changes no layer's cost: by exit.train = "weighted" every token goes through all blocks
exit.threshold = 1 has no effect while exit.train = "weighted"
exit.weight = 2 has no effect while exit.train = "weighted"`,
		"exit.stage2=100": "exit.stage2 = 100 has no effect: it is not below train.steps = 100",
		"exit.stage2=99":  "",
	} {
		c, err := config.Load("", append([]string{"dynamic.kind=exit"}, strings.Fields(sets)...))
		expect.OK(t, err)
		keys, none := 0, 0
		told := slices.DeleteFunc(c.Ignored(), func(line string) bool {
			isKeys, isNone := strings.HasPrefix(line, "tokens that leave at an exit are no keys"), strings.HasPrefix(line, "a token leaves only where its confidence is above exit.threshold = 0.9: in 100 steps it may be that none does")
			if isKeys {
				keys++
			}
			if isNone {
				none++
			}
			return isKeys || isNone
		})
		if got := strings.Join(told, "\n"); got != want || keys != 1 && !strings.Contains(sets, "weighted") && !strings.Contains(sets, "propagate") {
			t.Errorf("%s: %q, want %q", sets, got, want)
		}
		if mayBeNone := !strings.Contains(sets, "threshold") && !strings.Contains(sets, "share") && !strings.Contains(sets, "weighted"); (none == 1) != mayBeNone {
			t.Errorf("%s: %d notes that no token may leave", sets, none)
		}
	}
}
